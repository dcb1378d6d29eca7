"""Write the API pages of the documentation site from signatures and docstrings.

A signature is that of the stub (.pyi) where a module has one, else that of the source. A docstring
is that of the source, Cython's included. Nothing is imported, so the site needs no build.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.site_files import prose

ROOT = Path(__file__).resolve().parents[1]

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OPENS = re.compile(r"( *)(?:cdef |async |cpdef )*(?:class|def) +(\w+)")
#: special methods that a reader calls by an operator or a statement
_SPECIAL: Final = frozenset(
    ("__len__", "__getitem__", "__iter__", "__enter__", "__aenter__", "__call__")
)


class Area(NamedTuple):
    """One page: its title, what it is about, and {module: names}. Empty names: the module's all."""

    title: str
    about: str
    modules: dict[str, tuple[str, ...]]


#: {page: area}. docs/versioning.md says what is public.
AREAS: Final = {
    "validator": Area(
        "LogValidator",
        "Validate the batches of a partition, a request or a segment.",
        {
            "core.batches.validator": ("LogValidator",),
            "core.batches.result": ("ValidationResult", "RecordValidationStats", "RejectedBatch"),
        },
    ),
    "batches": Area(
        "Record batches",
        "Read, scan and build record batches.",
        {
            "core.batches.batch": ("RecordBatch", "DecodedRecord", "batches"),
            "core.convert.record_batch_builder": ("RecordBatchBuilder",),
            "errors": ("NotABatch",),
            "core.batches.columns": ("scan_batches", "BatchColumns", "BatchRow", "CheckedRow"),
        },
    ),
    "records": Area(
        "Records as columns",
        "Read the records of many batches, and convert batches to older formats.",
        {
            "core.batches.record_columns": ("record_columns", "RecordColumns"),
            "core.convert.down_conversion": ("down_convert", "DownConverted", "NotConverted"),
        },
    ),
    "policy": Area(
        "Topic settings and record rules",
        "The configuration of a topic, and what its owner asks of records.",
        {
            "policy": ("TopicPolicy", "ClaimsPolicy"),
            "record_rules": ("RecordRules", "SchemaIds"),
            "custom_rules": (),
        },
    ),
    "claims": Area(
        "Claims",
        "Read claims, and decide which of them are verified.",
        {"core.stages.claims": ("BatchClaims",), "ledger": ("ClaimsLedger",)},
    ),
    "types": Area(
        "Types, rules and errors",
        "The enumerations that results and arguments hold, and the class of all errors.",
        {
            "types": ("AppendOrigin", "CompressionType", "TimestampType"),
            "errors": ("BatchvalError", "ErrorCode"),
            "rules": ("Rule",),
        },
    ),
    "spark": Area("Spark", "The audit on PySpark, and segments as data sources.", {"spark": ()}),
    "producer": Area("Producer", "A producer on one asyncio loop.", {"producer": ()}),
    "consumer": Area("Consumer", "A consumer on one asyncio loop.", {"fetch": ()}),
}


def source_of(module: str, suffixes: tuple[str, ...]) -> Path:
    """Return the file of a module below batchval/. Raises FileNotFoundError."""
    path = ROOT / "batchval" / module.replace(".", "/")
    for one in (*(path.with_suffix(suffix) for suffix in suffixes), path / "__init__.py"):
        if one.is_file():
            return one
    raise FileNotFoundError(path)


def exported(module: str) -> tuple[str, ...]:
    """Return the names of a module's ``__all__``."""
    for node in ast.parse(source_of(module, (".py",)).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    raise ValueError(f"batchval.{module} has no __all__")


def home_of(module: str, name: str) -> str:
    """Return the module that defines a name, where a package only exports it."""
    path = source_of(module, (".pyi", ".py"))
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return str(node.module).removeprefix("batchval.")
    return module


def docstrings(path: Path) -> dict[str, str]:
    """Return {qualified name: docstring} of a source in Python or Cython."""
    lines = path.read_text("utf-8").splitlines()
    found: dict[str, str] = {}
    open_names: list[tuple[int, str]] = []
    for at, line in enumerate(lines):
        opened = _OPENS.match(line)
        if not opened:
            continue
        indent = len(opened[1])
        open_names = [one for one in open_names if one[0] < indent] + [(indent, opened[2])]
        text = _docstring(lines, at)
        if text:
            found.setdefault(".".join(name for _, name in open_names), text)
    return found


def _docstring(lines: list[str], at: int) -> str:
    """Return the docstring of a definition that begins at a line, or an empty text."""
    while at < len(lines) and not re.search(r":\s*(?:#.*)?$", lines[at]):
        at += 1
    text = "\n".join(lines[at + 1 : at + 200])
    match = re.match(r'\s*r?"""(.*?)"""', text, re.DOTALL)
    if not match:
        return ""
    first, _, rest = match[1].partition("\n")
    margins = [len(line) - len(line.lstrip()) for line in rest.splitlines() if line.strip()]
    cut = min(margins, default=0)
    return "\n".join([first.strip(), *(line[cut:].rstrip() for line in rest.splitlines())]).strip()


def signature(node: _Function, name: str) -> str:
    """Return a function's signature, one parameter a line where it is long."""
    arguments = node.args
    for plain in (arguments.posonlyargs, arguments.args):
        if plain and plain[0].arg in {"self", "cls"}:
            del plain[0]
            break
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    keyword = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    text = f"{keyword}{name}({ast.unparse(arguments)}){returns}"
    if len(text) <= 90:
        return text
    parts = re.split(r", (?![^\[(]*[\])])", ast.unparse(arguments))
    return f"{keyword}{name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"


def _parsed(text: str) -> ast.Module:
    """Return a module with its private type aliases replaced by what they stand for."""
    tree = ast.parse(text)
    for node in [one for one in tree.body if isinstance(one, ast.AnnAssign) and one.value]:
        name = ast.unparse(node.target)
        if name.startswith("_") and ast.unparse(node.annotation) == "TypeAlias":
            tree.body.remove(node)
            text = re.sub(
                rf"\b{name}\b", lambda _, value=node.value: ast.unparse(value), ast.unparse(tree)
            )
            return _parsed(text)
    return tree


def _code(text: str) -> list[str]:
    return ["```python", text, "```", ""]


def _is_property(node: _Function) -> bool:
    return any(ast.unparse(one).endswith("property") for one in node.decorator_list)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield (name, type, default) of a class's public fields and properties."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            default = ast.unparse(one.value) if one.value else ""
            yield one.target.id, ast.unparse(one.annotation), default
        elif isinstance(one, _Function) and _is_property(one) and one.returns:
            yield one.name, ast.unparse(one.returns), ""
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            yield one.targets[0].id, "", ast.unparse(one.value)


def class_lines(node: ast.ClassDef, texts: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a class: its text, how it is made, its fields and its methods."""
    methods = {one.name: one for one in node.body if isinstance(one, _Function)}
    made = methods.get("__init__") or methods.get("__new__")
    yield from _code(
        signature(made, node.name).removesuffix(" -> None") if made else f"class {node.name}"
    )
    yield from (prose(texts.get(node.name, "")), "")
    rows = [row for row in _fields(node) if not row[0].startswith("_")]
    if rows:
        yield from ("| attribute | type | value | meaning |", "|---|---|---|---|")
        for name, kind, default in rows:
            meaning = " ".join(prose(texts.get(f"{node.name}.{name}", "")).split())
            cells = (f"`{one}`" if one else "" for one in (name, kind, default))
            yield (
                "| "
                + " | ".join(
                    [*(cell.replace("|", r"\|") for cell in cells), meaning.replace("|", r"\|")]
                )
                + " |"
            )
        yield ""
    for name, method in methods.items():
        if (name.startswith("_") and name not in _SPECIAL) or _is_property(method):
            continue
        yield from (f"### {node.name}.{name}", "")
        yield from _code(signature(method, name))
        yield from (prose(texts.get(f"{node.name}.{name}", "")), "")


def name_lines(module: str, name: str) -> Iterator[str]:
    """Yield the lines of one public name."""
    home = home_of(module, name)
    while (further := home_of(home, name)) != home:
        home = further
    tree = _parsed(source_of(home, (".pyi", ".py")).read_text("utf-8"))
    texts = docstrings(source_of(home, (".pyx", ".py")))
    package = "batchval" if name in exported("") else f"batchval.{module}"
    yield from (f"## {name}", "", *_code(f"from {package} import {name}"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from class_lines(node, texts)
            return
        if isinstance(node, _Function) and node.name == name:
            yield from _code(signature(node, name))
            yield from (prose(texts.get(name, "")), "")
            return
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == name:
            yield from _code(ast.unparse(node))
            return
    raise LookupError(f"batchval.{home} does not define {name}")


def page(area: Area) -> str:
    """Return the Markdown of one page."""
    lines = [f"# {area.title}", "", area.about, ""]
    for module, names in area.modules.items():
        for name in names or exported(module):
            lines += name_lines(module, name)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Return {path below docs/: Markdown} of all API pages."""
    return {f"reference/api/{name}.md": page(area) for name, area in AREAS.items()}
