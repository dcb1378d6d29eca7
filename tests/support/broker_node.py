"""A broker whose answers are functions of the requests, in Kafka's own format; several of them make
a cluster.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from batchval.errors import ErrorCode
from batchval.protocol import messages
from batchval.protocol.message import Request
from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from batchval.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.network import API_VERSIONS, Peer

REQUESTS: dict[int, Any] = {}
for _module in pkgutil.iter_modules(messages.__path__):
    for _kind in vars(importlib.import_module(f"{messages.__name__}.{_module.name}")).values():
        if isinstance(_kind, type) and issubclass(_kind, Request) and _kind is not Request:
            REQUESTS[_kind.api_key] = _kind


@dataclass
class Held:
    """An answer whose first bytes are sent at once, the others when ``go`` is set; None: never, it
    hangs up instead.
    """

    response: Any
    first: int
    go: asyncio.Event | None


#: what a handler returns for a request that is not answered
NO_ANSWER = object()
#: request -> response | NO_ANSWER | None (hang up) | awaitable of these
Handler = Callable[[Any], Any]
Deliver = Callable[[Any, asyncio.StreamWriter, bytes], None]


def _write(request: Any, writer: asyncio.StreamWriter, response: bytes) -> None:
    writer.write(response)


class BrokerNode:
    """Speaks the APIs that it has handlers for, in all versions known here unless ``ranges`` says
    otherwise. ``deliver`` may send an answer later than its request asks for.
    """

    def __init__(
        self,
        handlers: dict[int, Handler],
        node_id: int = 1,
        ranges: dict[int, tuple[int, int]] | None = None,
        deliver: Deliver = _write,
        **server: Any,
    ):
        self.handlers = handlers
        self.node_id = node_id
        self.ranges = ranges or {}
        self.deliver = deliver
        self.seen: list[Any] = []
        self.peer = Peer(self._serve, **server)

    async def __aenter__(self) -> Self:
        await self.peer.start()
        return self

    async def __aexit__(self, *errors: object) -> None:
        await self.peer.__aexit__(*errors)

    @property
    def port(self) -> int:
        return self.peer.port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def of(self, api_key: int) -> list[Any]:
        return [request for request in self.seen if request.api_key == api_key]

    async def _serve(
        self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await peer.read(reader)
            request_class = REQUESTS[frame.api_key]
            _, request = request_class.parse(struct.pack(">hhi", *frame[:3]) + frame.body)
            version = frame.api_version
            if frame.api_key == API_VERSIONS:
                response: Any = self._api_versions()
                if version > self._range(API_VERSIONS)[1]:
                    response.error_code, version = ErrorCode.UNSUPPORTED_VERSION, 0
            else:
                self.seen.append(request)
                response = self.handlers[frame.api_key](request)
                if inspect.isawaitable(response):
                    response = await response
            if response is None:
                return
            if response is NO_ANSWER:
                continue
            held, response = (
                (response, response.response) if isinstance(response, Held) else (None, response)
            )
            whole = b"".join(response.encode(frame.correlation_id, version))
            if held is not None:
                writer.write(whole[: held.first])
                if held.go is None:
                    return
                await held.go.wait()
                whole = whole[held.first :]
            self.deliver(request, writer, whole)

    def _range(self, key: int) -> tuple[int, int]:
        return self.ranges.get(key, (REQUESTS[key].min_version, REQUESTS[key].max_version))

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=self._versions())

    def _versions(self) -> list[ApiVersion]:
        return [ApiVersion(key, *self._range(key)) for key in [API_VERSIONS, *self.handlers]]


def metadata(
    brokers: dict[int, int],
    topics: dict[str, list[tuple[int, int]]],
    topic_ids: dict[str, bytes] | None = None,
) -> MetadataResponse:
    """Build metadata. ``brokers``: port by id; ``topics``: (leader, epoch) by partition."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id, "127.0.0.1", port) for node_id, port in brokers.items()
        ],
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=(topic_ids or {}).get(name, name.encode().ljust(16, b"\0")[:16]),
                partitions=[
                    MetadataResponsePartition(0 if leader >= 0 else 5, number, leader, epoch)
                    for number, (leader, epoch) in enumerate(partitions)
                ],
            )
            for name, partitions in topics.items()
        ],
    )


def unknown_topic(name: str, error: int = 3) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name)
