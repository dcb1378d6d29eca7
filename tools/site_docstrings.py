"""Prepare modules for the API pages of the documentation site: an extension of griffe.

mkdocstrings shows what griffe reads, and griffe reads a stub (.pyi) where a module is compiled. A
stub gets the docstrings of its .pyx file here, and all private type aliases are replaced by the
types that they stand for. Nothing is imported, so the site needs no build.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from Cython.Compiler.TreeFragment import parse_from_strings
from Cython.Compiler.Visitor import TreeVisitor
from griffe import Extension, Visitor

from tools.site_files import prose

_Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class SiteDocstrings(Extension):
    """The docstrings of .pyx files, public types, and docstrings as Markdown."""

    def on_module_node(self, *, node: ast.Module, agent: Visitor, **_: Any) -> None:
        """Change a module's syntax tree before griffe reads it."""
        _Aliases(node).visit(node)
        source = agent.filepath.with_suffix(".pyx")
        if source.exists():
            _document(node, docstrings(source))
        for one in ast.walk(node):
            if isinstance(one, _Documented) and (text := ast.get_docstring(one)):
                _replace_docstring(one, prose(text))


class _Aliases(ast.NodeTransformer):
    """Replaces the private type aliases of a module by what they stand for."""

    def __init__(self, module: ast.Module) -> None:
        """Collect the aliases, which are annotated as ``TypeAlias``."""
        self._values = {
            one.target.id: one.value
            for one in module.body
            if isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and one.target.id.startswith("_")
            and ast.unparse(one.annotation) == "TypeAlias"
        }

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Leave the name of an alias where it is defined."""
        node.annotation = self.visit(node.annotation)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a name, and the names in what it stands for."""
        value = self._values.get(node.id)
        return node if value is None else self.visit(value)


class _Docstrings(TreeVisitor):
    """Collects {qualified name: docstring} of a syntax tree of Cython."""

    def __init__(self) -> None:
        """Begin without docstrings."""
        super().__init__()
        self.found: dict[str, str] = {}
        self._names: list[str] = []

    def visit_Node(self, node: Any) -> None:
        """Look inside a node."""
        self.visitchildren(node)

    def _visit_named(self, node: Any) -> None:
        self._names.append(node.class_name if hasattr(node, "class_name") else node.name)
        if node.doc:
            self.found[".".join(self._names)] = inspect.cleandoc(node.doc)
        self.visitchildren(node)
        self._names.pop()

    visit_CClassDefNode = visit_PyClassDefNode = visit_DefNode = _visit_named


def docstrings(path: Path) -> dict[str, str]:
    """Return {qualified name: docstring} of a .pyx file."""
    visitor = _Docstrings()
    visitor.visit(parse_from_strings(path.stem, path.read_text("utf-8")))
    return visitor.found


def _document(node: ast.Module | ast.ClassDef, texts: dict[str, str], outer: str = "") -> None:
    """Insert docstrings into the classes and functions of a stub."""
    for one in node.body:
        if not isinstance(one, _Documented):
            continue
        name = f"{outer}{one.name}"
        if name in texts:
            one.body.insert(0, ast.Expr(ast.Constant("")))
            _replace_docstring(one, texts[name])
        if isinstance(one, ast.ClassDef):
            _document(one, texts, f"{name}.")


def _replace_docstring(node: _Documented, text: str) -> None:
    node.body[0] = ast.copy_location(ast.Expr(ast.Constant(text)), node)
    ast.fix_missing_locations(node)
