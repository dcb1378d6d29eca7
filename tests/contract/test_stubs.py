"""Each .pyi says of its .pyx what is true: the names, the parameters, the defaults, both ways."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.contract.sources import PACKAGE, ROOT, files, imports

STUBS = files(PACKAGE, ".pyi")
ALLOWED = Path(__file__).parent / "stubtest-allowlist.txt"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def declared(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Name -> statement of what a stub declares at this level, private names and imports aside."""
    found: dict[str, ast.stmt] = {}
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = statement
    return {name: statement for name, statement in found.items() if not name.startswith("_")}


def offered(module: ModuleType, path: Path) -> dict[str, Any]:
    """Return the public names that a module defines, without its imports."""
    imported = {found.name for found in imports(path)} | {
        found.module.split(".")[0] for found in imports(path)
    }
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in imported and not isinstance(value, ModuleType)
    }


def written(node: Function) -> list[tuple[str, str, object]]:
    """Return (name, kind, default) of each parameter of a stub's function, without self and cls."""
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(a.defaults)), *a.defaults]
    rows = [
        (arg.arg, "plain", value(default)) for arg, default in zip(plain, defaults, strict=True)
    ]
    rows += [
        (arg.arg, "keyword", value(default))
        for arg, default in zip(a.kwonlyargs, a.kw_defaults, strict=True)
    ]
    return [row for row in rows if row[0] not in {"self", "cls"}]


def value(node: ast.expr | None) -> object:
    return inspect.Parameter.empty if node is None else ast.literal_eval(node)


def real(function: Any) -> list[tuple[str, str, object]]:
    """Return the same of the running function."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        (p.name, "keyword" if p.kind is keyword else "plain", p.default)
        for p in inspect.signature(function).parameters.values()
        if p.name not in {"self", "cls"}
    ]


def compare_class(name: str, node: ast.ClassDef, kind: type) -> list[str]:
    wrong = []
    inherited = {attribute for base in kind.__mro__[1:] for attribute in vars(base)}
    has = {n for n in vars(kind) if not n.startswith("_") and (n not in inherited or n == "count")}
    says = declared(node.body)
    instance_fields = {n for n, statement in says.items() if isinstance(statement, ast.AnnAssign)}
    for missing in sorted(has - says.keys()):
        wrong.append(f"{name}.{missing} is not in the stub")
    for extra in sorted(says.keys() - has - instance_fields):
        wrong.append(f"{name}.{extra} is not in the module")
    for attribute in sorted(has & says.keys()):
        statement = says[attribute]
        if not isinstance(statement, Function):
            continue
        is_property = any(
            isinstance(d, ast.Name) and d.id == "property" for d in statement.decorator_list
        )
        if is_property != inspect.isdatadescriptor(getattr(kind, attribute)):
            wrong.append(
                f"{name}.{attribute}: one of stub and module has a property here, the other a method"
            )
        elif not is_property and written(statement) != real(getattr(kind, attribute)):
            wrong.append(
                f"{name}.{attribute}: {written(statement)} in the stub, {real(getattr(kind, attribute))} in truth"
            )
    return wrong


def compare(path: Path) -> list[str]:
    """Return all differences between a .pyi and its module."""
    module = importlib.import_module(module_of(path))
    says = declared(ast.parse(path.read_text("utf-8")).body)
    has = offered(module, path.with_suffix(".pyx"))
    wrong = [f"{name} is not in the stub" for name in sorted(has.keys() - says.keys())]
    wrong += [f"{name} is not in the module" for name in sorted(says.keys() - has.keys())]
    for name in sorted(has.keys() & says.keys()):
        statement = says[name]
        if isinstance(statement, ast.ClassDef):
            wrong += compare_class(name, statement, has[name])
        elif isinstance(statement, Function) and written(statement) != real(has[name]):
            wrong.append(f"{name}: {written(statement)} in the stub, {real(has[name])} in truth")
    return wrong


@pytest.mark.parametrize("path", STUBS, ids=module_of)
def test_a_stub_and_its_module_say_the_same(path: Path) -> None:
    assert compare(path) == []


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        (
            "def decode(block: bytes, limit: int = 2147483648)",
            "def decode(block: bytes, limit: int = 1)",
            "decode: ",
        ),
        ("def decode(block", "def decode(blocks", "decode: "),
        ("def decode", "def encode(): ...\ndef decode", "encode is not in the module"),
        ("def decode", "def _decode", "decode is not in the stub"),
    ],
    ids=["default", "parameter", "name too many", "name too few"],
)
def test_a_lying_stub_is_found(
    right: str, wrong: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = PACKAGE / "core" / "snappy.pyi"
    text = stub.read_text("utf-8")
    assert right in text
    read = Path.read_text

    def lying(self: Path, *args: Any, **kwargs: Any) -> str:
        return text.replace(right, wrong) if self == stub else read(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", lying)
    assert any(complaint in found for found in compare(stub))


def test_stubtest(tmp_path: Path) -> None:
    """Run mypy's own comparison, which also checks default values and base classes."""
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nignore_missing_imports = true\n")
    modules = [module_of(path) for path in STUBS]
    command = [
        sys.executable,
        "-m",
        "mypy.stubtest",
        "--mypy-config-file",
        str(config),
        "--allowlist",
        str(ALLOWED),
    ]
    command += ["--ignore-unused-allowlist", *modules]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
