"""Numbers of native code: header positions and API keys are declared once (tools/generate_rules.py
writes those for Python), and an enumerator has the same C type with every compiler.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from batchval.core.format import layout
from batchval.core.records.record_errors import KINDS
from batchval.protocol.apis import ApiKey
from tests.support.sources import PACKAGE, files

_CONSTANT = re.compile(r"^ +([A-Z][A-Z0-9_]*) = (-?[0-9]+)\b", re.MULTILINE)
_ENUM = re.compile(r"^( *)(?:cdef|cpdef) enum\b.*:.*\n((?:\1 .*\n|\n)+)", re.MULTILINE)
_NUMBER = re.compile(r"^ +(\w+) *= *([^#\n]+)", re.MULTILINE)
_PLAIN = re.compile(r"[\d\s()+*|<xA-Fa-f-]+")
SOURCES = files(PACKAGE, ".pxd", ".pyx")
_HOMES_OF_KEYS = ("protocol/apis.py", "protocol/walkers/api_keys.pxd")
_HOMES = {"core/format/layout.py", "core/format/layout.pxd", "core/stages/claims_block.pxd"}

FIELDS = {
    name: getattr(layout, name)
    for name in layout.__all__
    if name not in ("CODEC_MASK", "LEGACY_MIN_SIZE")
}
#: Other names that such a position has had.
OTHER_NAMES = {"SIZE", "HEADER", "HEADER_SIZE", "BATCH_HEADER", "CODEC", "FLAGS"}


def declarations(text: str) -> Iterator[tuple[str, int]]:
    """Yield names that a Python module sets to whole numbers, also several in one statement."""
    for node in ast.walk(ast.parse(text)):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if _is_annotated(node)
            else []
        )
        for target in targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for name, value in pairs:
                if (
                    isinstance(name, ast.Name)
                    and isinstance(value, ast.Constant)
                    and type(value.value) is int
                ):
                    yield name.id, value.value


def _is_annotated(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None


def constants(path: str, text: str) -> Iterator[tuple[str, int]]:
    if path.endswith(".py"):
        return declarations(text)
    return ((name, int(value)) for name, value in _CONSTANT.findall(text))


def positions(path: str, text: str) -> list[str]:
    """Return header positions that a file declares or reads as bare numbers."""
    found = []
    for name, value in constants(path, text):
        plain = name.strip("_").removesuffix("_AT")
        if (plain in FIELDS and value == FIELDS[plain]) or (
            (plain in FIELDS or plain in OTHER_NAMES) and value in (16, 17, 21, 22, 61, 74)
        ):
            found.append(f"{path}: {name} = {value}")
    return found


def test_python_and_native_code_have_the_same_api_keys() -> None:
    text = (PACKAGE / "protocol" / "walkers" / "api_keys.pxd").read_text("utf-8")
    declared = {name: int(value) for name, value in _CONSTANT.findall(text)}
    assert declared == {name: ApiKey[name] for name in declared}
    assert declared


def keys_declared(path: str, text: str) -> list[str]:
    """Return API keys that a file declares under their names."""
    return [
        f"{path}: {name} = {key}"
        for name, key in constants(path, text)
        if ApiKey.__members__.get(name.strip("_")) == key
    ]


@pytest.mark.parametrize("suffix", [".py", ".pyx", ".pxd"])
def test_nobody_else_declares_a_position_or_an_api_key(suffix: str) -> None:
    found = []
    for file in files(PACKAGE, suffix):
        path, text = str(file.relative_to(PACKAGE)), file.read_text("utf-8")
        if path not in _HOMES and not path.startswith("protocol/messages/"):
            found += positions(path, text)
        if path not in _HOMES_OF_KEYS:
            found += keys_declared(path, text)
    assert found == []


def enums(text: str) -> Iterator[dict[str, int]]:
    """Yield the enumerators of each enum. Sums of other names are small, and left out."""
    for found in _ENUM.finditer(text):
        numbers = ((name, value.strip(" ,")) for name, value in _NUMBER.findall(found[2]))
        yield {name: eval(value, {}) for name, value in numbers if _PLAIN.fullmatch(value)}


def test_large_numbers_have_an_enum_of_their_own() -> None:
    """In an enum with a number of more than 31 bits, GCC before 13 gives the others the type int;
    GCC 13 and Clang 20 give all the type of the enum, which is unsigned: a comparison of a negative
    number with such an enumerator then has another answer.
    """
    read = [(path, numbers) for path in SOURCES for numbers in enums(path.read_text("utf-8"))]
    assert (PACKAGE / "core" / "format" / "layout.pxd", {"MAX_OFFSET": (1 << 63) - 1}) in read
    assert [
        (path.name, list(numbers))
        for path, numbers in read
        if len({-(1 << 31) <= number < 1 << 31 for number in numbers.values()}) > 1
    ] == []


def test_kinds_of_record_errors_are_those_of_the_core() -> None:
    text = (PACKAGE / "core" / "records" / "compiled_rules.pxd").read_text("utf-8")
    block = text.partition("cdef enum:  # RecordError.kind")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in block.splitlines()[1:]]
    assert [name.partition("=")[0] for name in names] == list(KINDS)
