"""The target ``answers_of_others``: a schema registry's answers, and messages of a hand-over, cut
and changed.

What must hold: a registry's answer is a RegistryError or a value of the documented type; a message
of the other gate of a hand-over is an OSError (HandOverError is one), and the running gate goes on.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from batchval.proxy.cluster.state_file import StoredCluster
from batchval.proxy.life.control import Control, Offer, _Peer
from batchval.proxy.life.handover import TakeOver
from batchval.proxy.life.handover_messages import HandOverError, Incoming, encoded
from batchval.schema_registry.registry_client import RegistryClient, RegistryError
from tests.evidence.hostile.wire import broken

__all__ = ["PLAIN_CLIENTS", "handover_case", "plain_case", "registry_case"]

_JSON: Final = (
    b"[1, 2, 3]",
    b'{"id": 7, "subject": "t-value", "version": 1}',
    b'[{"subject": "t-value", "version": 2}, {"subject": "u-value", "version": 1}]',
    b'{"error_code": 40401, "message": "Subject not found."}',
    b"[" * 4000,
    b'{"id": ' + b"9" * 5000 + b"}",
    b'{"id": 1e999}',
    b'{"id": true}',
    b"null",
    b"[" + b'{"subject": "x"}, ' * 2000 + b'{"subject": null}]',
    b"\xff\xfe[1]",
)
_STATUSES: Final = (b"200 OK", b"200 OK", b"200 OK", b"404 Not Found", b"500 x", b"100 Continue")
_HTTP_VALUES: Final = (b"-1", b"99999999999999999999", b"0", b"x", b"", b"1" * 70_000, b"\xff")


def _registry_answer(rng: random.Random) -> bytes:
    body = rng.choice(_JSON[:4] if rng.random() < 0.7 else _JSON)
    head = b"HTTP/1.1 " + rng.choice(_STATUSES) + b"\r\nContent-Type: application/json\r\n"
    match rng.randrange(4):
        case 0:
            chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            whole = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
        case 1:
            length = rng.choice(_HTTP_VALUES)
            whole = head + b"Content-Length: " + length + b"\r\n\r\n" + body
        case 2:
            whole = head + b"\r\n" + body
        case _:
            whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    what = rng.random()
    if what < 0.3:
        return whole[: rng.randrange(len(whole) + 1)]
    return broken(rng, whole) if what < 0.8 else whole


def registry_case(seed: int) -> list[str]:
    """Return what is wrong with the registry client that gets the answer of this number."""
    rng = random.Random(seed)
    answer = _registry_answer(rng)
    client = RegistryClient("http://registry:1", timeout_s=1.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer[:200_000])
        theirs.shutdown(socket.SHUT_WR)
        client._connected = lambda until: ours  # type: ignore[method-assign]
        ask: Callable[[], Any]
        ask, check = rng.choice(
            (
                (lambda: client.versions("t-value"), _is_versions),
                (lambda: client.id_of("t-value", 1), _is_id),
                (lambda: client.subjects_of(7), _is_subjects),
            )
        )
        try:
            found = ask()
        except RegistryError:
            return []
        except Exception as error:
            return [f"{answer[:300]!r}: {error!r}"]
    return [] if check(found) else [f"{answer[:300]!r}: {found!r:.100}"]


def _is_versions(found: Any) -> bool:
    return found is None or (isinstance(found, list) and all(type(one) is int for one in found))


def _is_id(found: Any) -> bool:
    return found is None or type(found) is int


def _is_subjects(found: Any) -> bool:
    return isinstance(found, frozenset) and all(isinstance(one, str) for one in found)


# ---- hand-over -----------------------------------------------------------------------------------

_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1, 2**63, 1e308, "", "x", [], {}, [[]], [["a", []]], [[":control", None]]),
    *(
        [["default", {}]],
        [["default", None], ["default", None]],
        "{}",
        '{"format": 1}',
        [1],
        "\x00",
    ),
)


def _changed(rng: random.Random, message: bytes, head: int = 8) -> bytes:
    """Return a message of a hand-over that is cut, broken, or has another value."""
    what = rng.random()
    if what < 0.15:
        return message[: rng.randrange(len(message))]
    if what < 0.4:
        body = broken(rng, message[head:])
        return message[:4] + len(body).to_bytes(4, "big") + body
    if what < 0.5:
        return broken(rng, message[:head]) + message[head:]
    content = json.loads(message[head:])
    for _ in range(rng.choice((1, 1, 2))):
        key = rng.choice([*content, "version", "pid", "state", "why"])
        if rng.random() < 0.2:
            content.pop(key, None)
        else:
            content[key] = rng.choice(_VALUES)
    data = json.dumps(content).encode()
    return b"BVGH" + len(data).to_bytes(4, "big") + data


def _offered() -> bytes:
    keys = [[":control", None], ["default", None], ["default", 1]]
    state = StoredCluster(("k:9092",), "c", False, {1: ("k", 9092)}, {"default": {1: 9093}})
    return encoded("sockets", keys=keys, left=0, unready=None, state=state.encode().decode())


def _taken_over(rng: random.Random) -> list[str]:
    """Let a new gate read what the running one sends."""
    ours, theirs = socket.socketpair()
    made = [socket.socket(socket.AF_UNIX) for _ in range(rng.choice((3, 3, 3, 0, 4)))]
    data = _changed(rng, _offered())
    try:
        if data:
            socket.send_fds(theirs, [data], [one.fileno() for one in made])
        theirs.sendall(_changed(rng, encoded("go")) if rng.random() < 0.5 else b"")
        theirs.shutdown(socket.SHUT_WR)
        try:
            taken = TakeOver(ours, 1)
        except OSError:
            return []
        except Exception as error:
            return [f"{data[:300]!r}: {error!r}"]
        for one in (*taken.sockets.values(), taken.control):
            one.close()
        return _answers(taken, data)
    finally:
        for one in (ours, theirs, *made):
            one.close()


def _answers(taken: TakeOver, data: bytes) -> list[str]:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(taken.ready())
    except OSError:
        return []
    except Exception as error:
        return [f"{data[:300]!r}: {error!r}"]
    finally:
        loop.close()
    return []


class _Transport:
    """Takes what is written, for ``_Peer``."""

    def __init__(self, peer: Any) -> None:
        self.peer, self.closed, self.written = peer, False, 0

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def close(self) -> None:
        self.closed = True


async def _serves(rng: random.Random, handed: list[int]) -> list[str]:
    """Let the running gate read what a new one sends."""
    control = Control(Path("/nonexistent"), lambda: Offer({}, "{}", None), handed.append)
    control._sock = socket.socket(socket.AF_UNIX)  # what goes with an offer
    data = b""
    try:
        for _ in range(3):
            peer = _Peer(control)
            peer.offer = lambda *_: None  # type: ignore[method-assign]
            peer._transport = _Transport(peer)  # type: ignore[assignment]
            control.peers.add(peer)
            for kind in ("hello", "ready", "took"):
                whole = encoded(kind, version=1, pid=7)
                data = whole if rng.random() < 0.5 else _changed(rng, whole)
                peer.data_received(data)
            peer.connection_lost(None)
    except Exception as error:
        return [f"{data[:300]!r}: {error!r}"]
    finally:
        control._sock.close()
        for one in control.peers:
            one.allow(None)
    return []


def handover_case(seed: int) -> list[str]:
    """Return what is wrong with the gates that get the messages of this number."""
    rng = random.Random(seed)
    if rng.random() < 0.4:
        return _taken_over(rng)
    if rng.random() < 0.2:
        with suppress(HandOverError):
            Incoming(4096).feed(rng.randbytes(rng.randrange(40)))
        return []
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_serves(rng, []))
    finally:
        loop.close()


#: Clients of others than brokers.
PLAIN_CLIENTS: Final[dict[str, Callable[[int], list[str]]]] = {
    "schema registry": registry_case,
    "hand-over": handover_case,
}


def plain_case(seed: int) -> list[str]:
    """Return what is wrong with the client that gets the answer of this number."""
    return PLAIN_CLIENTS["hand-over" if seed % 3 else "schema registry"](seed)
