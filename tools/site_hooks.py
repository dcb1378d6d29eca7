"""Hooks of the documentation site (mkdocs.yml): links to the repository's other files, and anchors.

The pages are read on GitHub as well. There a relative link may lead to any file of the repository,
and an anchor is made of a heading by GitHub's rule.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def github_anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Let the site make anchors as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = github_anchor
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lead links to files that are not in docs/ to the repository on the web."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def absolute(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        is_page = path == "docs" or path.startswith("docs/")
        return found[0] if is_page else f"]({config.repo_url.rstrip('/')}/blob/main/{path})"

    return _LINK.sub(absolute, markdown)
