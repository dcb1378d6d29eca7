"""Header positions are declared once, in native code: tools/generate_rules.py writes those for
Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from batchval.core.format import layout
from batchval.protocol.apis import ApiKey
from tests.support.sources import PACKAGE, files

_CONSTANT = re.compile(r"^ +([A-Z][A-Z0-9_]*) = (-?[0-9]+)\b", re.MULTILINE)
_HOMES = {"core/format/layout.py", "core/format/layout.pxd", "core/stages/claims_block.pxd"}

FIELDS = {
    name: getattr(layout, name)
    for name in layout.__all__
    if name not in ("CODEC_MASK", "LEGACY_MIN_SIZE")
}
#: The end of each field of a batch of magic 2, by its start.
ENDS = dict(
    zip(sorted({*FIELDS.values()} - {74, 3}), sorted({*FIELDS.values()} - {74, 3, 0}), strict=False)
)
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


def slices(text: str) -> Iterator[tuple[int, int]]:
    """Yield the bounds of slices that are whole numbers."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Slice)
            and isinstance(node.lower, ast.Constant)
            and isinstance(node.upper, ast.Constant)
        ):
            yield node.lower.value, node.upper.value


def positions(path: str, text: str) -> list[str]:
    """Return header positions that a file declares or reads as bare numbers."""
    found = []
    constants = (
        declarations(text)
        if path.endswith(".py")
        else ((n, int(v)) for n, v in _CONSTANT.findall(text))
    )
    for name, value in constants:
        plain = name.strip("_").removesuffix("_AT")
        if (plain in FIELDS and value == FIELDS[plain]) or (
            (plain in FIELDS or plain in OTHER_NAMES) and value in (16, 17, 21, 22, 61, 74)
        ):
            found.append(f"{path}: {name} = {value}")
    if path.endswith(".py"):
        found += [
            f"{path}: [{low}:{high}]" for low, high in slices(text) if low and ENDS.get(low) == high
        ]
    return found


@pytest.mark.parametrize("suffix", [".py", ".pyx", ".pxd"])
def test_nobody_else_declares_a_position(suffix: str) -> None:
    found = []
    for file in files(PACKAGE, suffix):
        path = str(file.relative_to(PACKAGE))
        if path not in _HOMES and not path.startswith("protocol/messages/"):
            found += positions(path, file.read_text("utf-8"))
    assert found == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "_MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT = 16, 17, 22"),
        ("a.py", "_HEADER = 61"),
        ("a.py", "_SIZE_AT, _LOG_OVERHEAD = 8, 12"),
        ("a.py", "RECORDS_COUNT: Final = 57"),
        ("a.py", "def count(batch):\n    return batch[57:61]"),
        ("a.py", "crc = header[17:21]"),
        ("a.pyx", "cdef enum:\n    CRC = 17\n"),
        ("a.pxd", "cdef enum:\n    CLAIMED_RECORDS = 74  # records\n"),
    ],
)
def test_a_position_is_found(path: str, text: str) -> None:
    assert positions(path, text)


# ---- API keys ------------------------------------------------------------------------------------


def test_python_and_native_code_have_the_same_api_keys() -> None:
    text = (PACKAGE / "protocol" / "walkers" / "api_keys.pxd").read_text("utf-8")
    declared = {name: int(value) for name, value in _CONSTANT.findall(text)}
    assert declared == {name: ApiKey[name] for name in declared}
    assert declared


def keys_declared(path: str, text: str) -> list[str]:
    """Return API keys that a file declares under their names."""
    constants = (
        declarations(text)
        if path.endswith(".py")
        else ((n, int(v)) for n, v in _CONSTANT.findall(text))
    )
    return [
        f"{path}: {name} = {key}"
        for name, key in constants
        if ApiKey.__members__.get(name.strip("_")) == key
    ]


@pytest.mark.parametrize("suffix", [".py", ".pyx", ".pxd"])
def test_nobody_else_declares_an_api_key(suffix: str) -> None:
    found = []
    for file in files(PACKAGE, suffix):
        path = str(file.relative_to(PACKAGE))
        if path not in ("protocol/apis.py", "protocol/walkers/api_keys.pxd"):
            found += keys_declared(path, file.read_text("utf-8"))
    assert found == []
