"""A registry that answers what a test says, and counts what it was asked."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections import Counter
from typing import Any

ABSENT = b'{"error_code": 40403, "message": "Schema not found"}'


def answer(status: int, body: bytes, *headers: str) -> bytes:
    """Return a whole answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class ScriptedRegistry:
    """``subjects`` is {subject: {version: id}}; ``raw`` is sent in place of every answer, and
    ``by_path`` in place of some.

    ``hold``  set: answers wait until ``go_on`` is set;  ``trickle``: bytes are sent one by one
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.subjects: dict[str, dict[int, int]] = {}
        self.raw: bytes | None = None
        self.by_path: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.headers: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.trickle = False
        self.tls = tls
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://localhost:{self.port}/api"

    def __enter__(self) -> ScriptedRegistry:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True)
            data = b""
            while b"\r\n\r\n" not in data:
                data += sock.recv(4096)
            line, *headers = data.decode().split("\r\n")
            path = line.split(" ")[1].removeprefix("/api")
            self.asked[path] += 1
            self.headers += headers
            self.go_on.wait(30)
            out = self.by_path.get(path) or (
                self.raw if self.raw is not None else self._answered(path)
            )
            if not self.trickle:
                sock.sendall(out)
                return
            stop = threading.Event()
            for i in range(len(out)):
                sock.sendall(out[i : i + 1])
                stop.wait(0.05)

    def _answered(self, path: str) -> bytes:
        parts = path.strip("/").split("/")
        found: Any = None
        if parts[0] == "subjects" and parts[1] in self.subjects:
            versions = self.subjects[parts[1]]
            found = [*versions] if len(parts) == 3 else {"id": versions[int(parts[3])]}
        elif parts[0] == "schemas":
            number = int(parts[2])
            listed = [
                (name, n)
                for name, versions in self.subjects.items()
                for n, i in versions.items()
                if i == number
            ]
            found = [{"subject": name, "version": n} for name, n in listed] or None
        return answer(404, ABSENT) if found is None else answer(200, json.dumps(found).encode())
