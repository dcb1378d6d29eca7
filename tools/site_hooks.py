"""Hooks of the documentation site (mkdocs.yml): links to the repository's other files, and anchors.

The pages are read on GitHub as well. There a relative link may lead to any file of the repository,
an anchor is made of a heading by GitHub's rule, and a bar in the code of a table is escaped.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from tools import site_files

#: what ``make docs`` has printed: this environment has no gate
_METRICS = Path(__file__).resolve().parents[1] / "build" / "metrics.md"
_CODE = re.compile(r"`[^`\n]+`")
_ROW = re.compile(r"^\|.*", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")

#: what a browser fetches without a click; a canonical address is not fetched
_FOREIGN = re.compile(
    r"<(?:script|img|iframe|source|link(?![^>]*rel=.?(?:canonical|next|prev|edit)))\b"
    r"[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s>]+",
    re.IGNORECASE,
)


def github_anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Let the site make anchors as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = github_anchor
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the lists of the package's files."""
    from mkdocs.structure.files import File  # the tests import this module without mkdocs

    for path, text in site_files.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lead links to files that are not in docs/ to the repository, repair code in tables, and append
    the list of metrics to their page.
    """
    if page.file.src_uri == "reference/proxy/metrics.md":
        markdown += _METRICS.read_text("utf-8")
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def absolute(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        is_page = path == "docs" or path.startswith("docs/")
        return found[0] if is_page else f"]({config.extra['repository']}/blob/main/{path})"

    return _plain_bars(_LINK.sub(absolute, markdown))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that loads a script, a style or a picture from another host."""
    from mkdocs.exceptions import PluginError  # the tests import this module without mkdocs

    if found := _FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {found[0]}")
    return output


def _plain_bars(markdown: str) -> str:
    r"""Write \| as | in the code of tables: GitHub needs the backslash, and the site shows it."""

    def repaired(row: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])

    return _ROW.sub(repaired, markdown)
