"""Check the pages of the built documentation site: links, anchors, and what a page loads.

    python -m tools.site_links build/site

Each link to a page of the site must lead to a file, with its anchor. Scripts, styles and pictures
must be files of the site: a page loads nothing from another host. Exit codes: 0, 1 with findings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: attributes of tags that a browser fetches without a click
_FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
}
#: relations of a <link> that are addresses only
_ADDRESSES = {"canonical", "next", "prev", "edit"}


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the id and the links of a tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        is_address = tag == "link" and bool(set(values.get("rel", "").split()) & _ADDRESSES)
        for name, value in values.items():
            if (tag, name) in _FETCHED and not is_address:
                self.loads.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)


def findings(site: Path) -> Iterator[str]:
    """Yield a sentence for each fault of a site."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: no pages"
    for path, page in pages.items():
        name = path.relative_to(site)
        if name.name == "404.html":  # its links begin at the site's own address
            continue
        for load in page.loads:
            address = urlsplit(load)
            if address.scheme != "data" and (
                address.netloc or not (path.parent / unquote(address.path)).is_file()
            ):
                yield f"{name}: loads {load}, which is not a file of the site"
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if not target.is_file():
                yield f"{name}: the link {link} leads to no file"
            elif (
                address.fragment
                and target in pages
                and unquote(address.fragment) not in pages[target].anchors
            ):
                yield f"{name}: the link {link} leads to no anchor"


def main(arguments: list[str]) -> int:
    """Run the command."""
    found = list(findings(Path(arguments[0]).resolve()))
    print("\n".join(found) or "site: all links lead to a page or an anchor")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
