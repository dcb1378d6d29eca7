"""Ask a schema registry, one question a connection.

    GET {url}/subjects/{subject}/versions        [1, 2]
    GET {url}/subjects/{subject}/versions/{n}    {"id": 7, …}
    GET {url}/schemas/ids/{id}/versions          [{"subject": "orders-value", "version": 2}]

Confluent's registry, Karapace, Apicurio (``…/apis/ccompat/v7``) and Redpanda answer these alike.
https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

from batchval.errors import ArgumentValueError, BatchvalError

__all__ = ["RegistryAnswerError", "RegistryClient", "RegistryError"]

#: Bytes of an answer.
MAX_ANSWER_BYTES: Final = 1 << 20
#: Bytes that are read of a connection: http.client reads a chunk of size -1 to the end.
MAX_READ_BYTES: Final = 8 * MAX_ANSWER_BYTES
#: Characters of a registry's own words in an error.
MAX_MESSAGE_LENGTH: Final = 200
#: ``error_code`` of answers about a subject, version or schema that does not exist.
ABSENT: Final = frozenset((40401, 40402, 40403))
#: Statuses that are about one subject or id, where a registry's own error comes with them. 403: the
#: user may not read it.
_OF_ONE: Final = frozenset(
    (
        http.HTTPStatus.BAD_REQUEST,
        http.HTTPStatus.FORBIDDEN,
        http.HTTPStatus.REQUEST_URI_TOO_LONG,
        http.HTTPStatus.UNPROCESSABLE_ENTITY,
    )
)
#: Bytes of an answer that are parsed in one call: below 1 ms.
MAX_PARSED_AT_ONCE: Final = 16 << 10
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBERS: Final = range(2**31)
_PORTS: Final = {"http": 80, "https": 443}


class RegistryError(BatchvalError):
    """An error: the registry has not answered, or not as a registry does."""


class RegistryAnswerError(RegistryError):
    """An error: the registry works, and its answer to this one request cannot be used: the user may
    not read the subject, or the answer is too long.
    """


class RegistryClient:
    """A schema registry by its URL. Its methods block, for ``timeout_s`` in all; for any thread.

    ``url``          http or https, with a path where the registry has one
    ``credentials``  returns (user name, password), asked for each question; None: none
    ``context``      returns the TLS context; None: the system's authorities

    Raises ArgumentValueError for a URL that cannot be one of a registry.
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: Callable[[], tuple[str, str]] | None = None,
        context: Callable[[], ssl.SSLContext] | None = None,
        timeout_s: float = 2.0,
    ) -> None:
        self._scheme, self._host, self._port, self._path = split_url(url)
        self.url = url
        self.timeout_s = timeout_s
        self._credentials = credentials
        self._context = context

    def versions(self, subject: str) -> list[int] | None:
        """Return the versions of a subject; None: it does not exist. RegistryError.

        RegistryAnswerError where another question may be answered, here and below.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = self._get(path)
        if found is None:
            return None
        if not isinstance(found, list) or not all(map(_is_number, found)):
            raise self._error(path, "expected a list of versions")
        return found

    def id_of(self, subject: str, version: int) -> int | None:
        """Return the schema id of a version; None: it does not exist. RegistryError."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        found = self._get(path)
        if found is None:
            return None
        if not isinstance(found, dict) or not _is_number(found.get("id")):
            raise self._error(path, "expected an object with an id")
        schema_id: int = found["id"]
        return schema_id

    def subjects_of(self, schema_id: int) -> frozenset[str]:
        """Return the subjects that have this schema id in a version. RegistryError."""
        path = f"/schemas/ids/{schema_id}/versions"
        found = self._get(path)
        if found is None:
            return frozenset()
        if not isinstance(found, list) or not all(
            isinstance(one, dict) and isinstance(one.get("subject"), str) for one in found
        ):
            raise self._error(path, "expected a list of subjects and versions")
        return frozenset(one["subject"] for one in found)

    # ---- one question --------------------------------------------------------------------------

    def _get(self, path: str) -> Any:
        """Return the parsed answer; None where the registry says that there is none."""
        try:
            status, data = self._exchange(path)
        except (OSError, http.client.HTTPException, ValueError) as error:  # of a chunk's size, too
            text = str(error) or type(error).__name__
            raise self._error(path, text[:MAX_MESSAGE_LENGTH]) from None
        if len(data) > MAX_ANSWER_BYTES:
            what = f"the answer is longer than {MAX_ANSWER_BYTES} bytes"
            raise self._error(
                path, what, RegistryAnswerError if status == http.HTTPStatus.OK else RegistryError
            )
        try:
            answer = _parsed(data)
        except (ValueError, RecursionError):
            answer = None
            if status == http.HTTPStatus.OK:
                raise self._error(path, "the answer is not JSON") from None
        if status == http.HTTPStatus.OK:
            if answer is None:
                raise self._error(path, "the answer is null")
            return answer
        facts: dict[str, Any] = answer if isinstance(answer, dict) else {}
        code, words = facts.get("error_code"), facts.get("message")
        if status == http.HTTPStatus.NOT_FOUND and isinstance(code, int) and code in ABSENT:
            return None
        is_of_one = isinstance(code, int) and status in _OF_ONE
        what = f"HTTP {status}" + (
            f": {words[:MAX_MESSAGE_LENGTH]}" if isinstance(words, str) else ""
        )
        raise self._error(path, what, RegistryAnswerError if is_of_one else RegistryError)

    def _exchange(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body, of which a byte too many at most is read."""
        until = time.monotonic() + self.timeout_s
        headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "Connection": "close",
        }
        if self._credentials is not None:
            try:
                user, password = self._credentials()
            except ValueError as error:
                raise OSError(str(error)) from None
            word = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {word}"
        connection = http.client.HTTPConnection(self._host, self._port)
        with self._connected(until) as sock:
            # http.client sends and reads by the socket that it finds here, and makes none itself
            connection.sock = _Timed(sock, until)
            connection.request("GET", f"{self._path}{path}", headers=headers)
            response = connection.getresponse()
            data = response.read(MAX_ANSWER_BYTES + 1)
            if response.length and len(data) <= MAX_ANSWER_BYTES:
                raise http.client.IncompleteRead(data, response.length)
            return response.status, data

    def _connected(self, until: float) -> socket.socket:
        sock = socket.create_connection(
            (self._host, self._port), timeout=max(until - time.monotonic(), 0.001)
        )
        if self._scheme == "http":
            return sock
        try:
            context = ssl.create_default_context() if self._context is None else self._context()
            sock.settimeout(_left(until))
            return context.wrap_socket(sock, server_hostname=self._host)
        except BaseException:
            sock.close()
            raise

    def _error(
        self, path: str, what: str, kind: type[RegistryError] = RegistryError
    ) -> RegistryError:
        plain = "".join(one if one.isprintable() else "?" for one in what)
        return kind(f"{self.url}{path}: {plain}")


def split_url(url: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path of a registry's URL. ArgumentValueError."""
    allowed = (
        "expected http://HOST:PORT or https://HOST:PORT, with a path where the registry has one"
    )
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise ArgumentValueError(f"invalid URL: {allowed}") from None
    if parts.username is not None or parts.password is not None:
        raise ArgumentValueError(
            "invalid URL: it holds credentials: set username and password instead"
        )
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise ArgumentValueError(f"invalid URL: {allowed}")
    if not url.isascii() or any(one.isspace() or not one.isprintable() for one in url):
        raise ArgumentValueError(f"invalid URL: {allowed}")
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _parsed(data: bytes) -> Any:
    """Parse JSON, a long list element by element: in one call the parser keeps the interpreter for
    itself, 10 ms for the 20,000 subjects of a widely used schema. ValueError, RecursionError.
    """
    if len(data) <= MAX_PARSED_AT_ONCE or data[:1] != b"[":
        return json.loads(data)
    text, decoder = data.decode(), json.JSONDecoder()
    found: list[Any] = []
    at, after = 0, ","
    while after == ",":
        element, at = decoder.raw_decode(text, _after_space(text, at + 1))
        found.append(element)
        at = _after_space(text, at)
        after = text[at : at + 1]
    if after != "]" or text[at + 1 :].strip():
        raise ValueError("the list does not end")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _NUMBERS


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _Timed:
    """A socket for http.client whose sending and reading end at one time, however little comes."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock = sock
        self._until = until

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._until))
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock, self._until))

    def close(self) -> None:
        """Leave the socket open: http.client calls this before the body is read."""


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock = sock
        self._until = until
        self._left = MAX_READ_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._until))
        size = self._sock.recv_into(buffer)
        self._left -= size
        if self._left < 0:
            raise OSError(f"more than {MAX_READ_BYTES} bytes came")
        return size
