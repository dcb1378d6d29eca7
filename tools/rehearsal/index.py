"""A package index of wheels for one run: PEP 503 pages over HTTP on 127.0.0.1.

/simple/            one link for each project
/simple/PROJECT/    one link for each wheel, with its SHA-256
/wheels/FILE        the wheel
"""

from __future__ import annotations

import hashlib
import html
import re
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self


def normalised(name: str) -> str:
    """Return a project's name as PEP 503 has it in addresses."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pages(digests: dict[str, str]) -> dict[str, str]:
    """Return the pages of an index by path. ``digests`` has the SHA-256 of each wheel by file
    name.
    """
    projects: dict[str, list[str]] = {}
    for file in sorted(digests):
        projects.setdefault(normalised(file.partition("-")[0]), []).append(file)
    made = {"/simple/": _page((f"/simple/{name}/", name) for name in projects)}
    for name, files in projects.items():
        links = [(f"/wheels/{file}#sha256={digests[file]}", file) for file in files]
        made[f"/simple/{name}/"] = _page(links)
    return made


def _page(links: Iterable[tuple[str, str]]) -> str:
    lines = "".join(
        f'<a href="{html.escape(to)}">{html.escape(text)}</a><br>\n' for to, text in links
    )
    return f"<!DOCTYPE html>\n<html><body>\n{lines}</body></html>\n"


class LocalIndex:
    """An index of wheels, served by a thread. ``requests`` are the paths that were requested."""

    def __init__(self, wheels: Iterable[Path]) -> None:
        """Read the wheels. ValueError where two have one file name."""
        self.wheels: dict[str, Path] = {}
        for wheel in wheels:
            if wheel.name in self.wheels:
                raise ValueError(f"two wheels have the name {wheel.name}")
            self.wheels[wheel.name] = wheel
        self.pages = pages(
            {
                name: hashlib.sha256(path.read_bytes()).hexdigest()
                for name, path in self.wheels.items()
            }
        )
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def root(self) -> str:
        """Return the base address of the index."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    @property
    def url(self) -> str:
        """Return the address for pip's --index-url."""
        return f"{self.root}simple"

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """Return the content of a path and its media type, or None."""
        self.requests.append(path)
        if page := self.pages.get(path):
            return page.encode(), "text/html; charset=utf-8"
        if (wheel := self.wheels.get(path.removeprefix("/wheels/"))) and path.startswith(
            "/wheels/"
        ):
            return wheel.read_bytes(), "application/octet-stream"
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        index = self

        class Handler(BaseHTTPRequestHandler):
            """Answers GET. Keeps the log of requests off the terminal."""

            def do_GET(self) -> None:
                """Send a page or a wheel, or 404."""
                found = index.answer(self.path)
                content, kind = found or (b"", "text/plain")
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing: ``requests`` has them."""

        return Handler
