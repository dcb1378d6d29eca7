"""What a consumer is told: Kafka's words, Kafka's defaults where nothing is said of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batchval.errors import BatchvalError
from batchval.fetch.pieces import FetchSplitter
from batchval.network.client import ClientOptions
from batchval.network.metadata import bootstrap_nodes
from batchval.network.network_client import NetworkOptions
from batchval.network.options import ConnectionOptions
from batchval.network.security import Security

__all__ = ["ISOLATION_LEVELS", "ConsumerOptions"]

#: their numbers in requests
ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
_RESETS: Final = ("earliest", "latest", "none")
_FRAME: Final = 100 << 20  # bytes: the splitter's own limit


@dataclass(slots=True, kw_only=True)
class ConsumerOptions:
    """Times in milliseconds, sizes in bytes. Raises BatchvalError or ValueError for what cannot be."""

    bootstrap_servers: Sequence[str] = ("localhost:9092",)
    group_id: str | None = None
    client_id: str = "batchval"
    auto_offset_reset: str = "latest"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rebalance_timeout_ms: int | None = None  # None: max_poll_interval_ms, as Kafka's consumer
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    default_api_timeout_ms: int = 60_000
    partition_assignment_strategy: Sequence[str] = ("range",)
    check_crcs: bool = False
    isolation_level: str = "read_uncommitted"
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    allow_auto_create_topics: bool = True
    security: Security = field(default_factory=Security)
    send_buffer_bytes: int | None = None  # None leaves the kernel's autotuning alone
    receive_buffer_bytes: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bootstrap_servers, str):
            self.bootstrap_servers = [self.bootstrap_servers]
        bootstrap_nodes(self.bootstrap_servers)
        if self.auto_offset_reset not in _RESETS:
            raise BatchvalError(f"auto_offset_reset {self.auto_offset_reset!r} is none of {', '.join(_RESETS)}")
        if self.isolation_level not in ISOLATION_LEVELS:
            raise BatchvalError(f"isolation_level {self.isolation_level!r} is none of {', '.join(ISOLATION_LEVELS)}")
        if list(self.partition_assignment_strategy) != ["range"]:
            raise BatchvalError("partition_assignment_strategy must be ['range']: no other assignor is here")
        if self.enable_auto_commit and self.group_id is None:
            raise BatchvalError("enable_auto_commit needs a group_id")
        if self.group_id == "":
            raise BatchvalError("group_id is empty")
        for name in ("fetch_min_bytes", "fetch_max_wait_ms"):
            if not 0 <= getattr(self, name) < 2**31:
                raise BatchvalError(f"{name} is {getattr(self, name)}: 0 to 2147483647 is possible")
        for name in ("fetch_max_bytes", "max_partition_fetch_bytes", "session_timeout_ms", "max_poll_interval_ms"):
            if not 0 < getattr(self, name) < 2**31:
                raise BatchvalError(f"{name} is {getattr(self, name)}: 1 to 2147483647 is possible")

    def client_options(self) -> ClientOptions:
        """For the network client."""
        largest = max(_FRAME, self.fetch_max_bytes + (1 << 20))
        connection = ConnectionOptions(
            splitter=lambda: FetchSplitter(largest),
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            ssl=self.security.ssl_context,
            send_buffer_bytes=self.send_buffer_bytes,
            receive_buffer_bytes=self.receive_buffer_bytes,
        )
        return ClientOptions(
            network=NetworkOptions(connection=connection, authenticate=self.security.authenticate),
            retry_backoff_ms=self.retry_backoff_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            session_timeout_ms=self.session_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )
