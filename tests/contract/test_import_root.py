"""Every file of tests/ and tools/ imports its helpers from the repository's root.

A helper with two names would be two modules, with two states, and plain ``pytest`` finds it under
one of them only. The form is ``from tests.support.batches import batch``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.contract.sources import ROOT

#: modules of these folders are imported as <folder>.<module>, at any depth
ROOTS = ("tests", "tools")


def bare_imports(root: Path) -> Iterator[str]:
    """Yield each import that does not start at the root, as ``file:line: module``."""
    modules = {path.stem for top in ROOTS for path in (root / top).rglob("*.py")}
    folders = {path.parent.name for top in ROOTS for path in (root / top).rglob("*.py")}
    for top in ROOTS:
        for path in sorted((root / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                    names.append(str(node.module))
                elif isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                else:
                    continue
                for name in sorted(names):
                    first, _, rest = name.partition(".")
                    is_folder = (
                        bool(rest) and first in folders and rest.partition(".")[0] in modules
                    )
                    is_neighbour = (
                        not rest and first in modules and _is_near(root / top, path, first)
                    )
                    if first not in ROOTS and (is_folder or is_neighbour):
                        yield f"{path.relative_to(root)}:{node.lineno}: {name}"
                        break


def _is_near(top: Path, path: Path, name: str) -> bool:
    """Return whether a bare import can mean a module next to the file or above it."""
    folders = [folder for folder in path.parents if folder.is_relative_to(top)]
    return any(
        (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
        for folder in folders
    )


def added_paths(root: Path) -> Iterator[str]:
    """Yield each line of tests/ that changes sys.path, as ``file:line: text``."""
    for path in sorted((root / "tests").rglob("*.py")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            text = line.strip()
            if text.startswith(
                ("sys.path.insert(", "sys.path.append(", "sys.path[:0] =", "sys.path +=")
            ):
                yield f"{path.relative_to(root)}:{number}: {text}"


#: the root, as programs below tests/ name it
_ALLOWED = (
    "sys.path.insert(0, str(Path(__file__).resolve().parents[2]))",
    "sys.path.insert(0, str(ROOT))",
    "sys.path.insert(0, {str(ROOT)!r})",
    "sys.path[:0] = [{root!r}]",
    'sys.path.insert(0, ".")',
    "sys.path.insert(0, os.getcwd())",
)


def test_every_import_starts_at_the_root() -> None:
    assert list(bare_imports(ROOT)) == []


def test_no_file_adds_another_root() -> None:
    assert [found for found in added_paths(ROOT) if found.split(": ", 1)[1] not in _ALLOWED] == []


def test_bare_imports_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "core"
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "support").mkdir()
    (tmp_path / "tests" / "support" / "batches.py").write_text("")
    (folder / "seeds.py").write_text("")
    (folder / "test_a.py").write_text(
        "import seeds\nfrom seeds import x\nfrom support.batches import batch\nimport json\n"
        "def f():\n    from support import batches\n    import tests.core.seeds\n"
        "from tests.core import seeds\n"
    )
    assert list(bare_imports(tmp_path)) == [
        "tests/core/test_a.py:1: seeds",
        "tests/core/test_a.py:2: seeds",
        "tests/core/test_a.py:3: support.batches",
        "tests/core/test_a.py:6: support.batches",
    ]


def test_added_paths_are_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.py").write_text(
        'import sys\nsys.path.insert(0, "tests")\nprint(sys.path)\n'
    )
    assert list(added_paths(tmp_path)) == ['tests/a.py:2: sys.path.insert(0, "tests")']
