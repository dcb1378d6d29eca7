"""Options of a consumer: Kafka's consumer configurations and defaults, with underscores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batchval.fetch.partition_chunks import FetchSplitter
from batchval.network.client import ClientOptions, check_heartbeat
from batchval.network.cluster_metadata import bootstrap_nodes
from batchval.network.network_client import NetworkOptions
from batchval.network.option_checks import INT32, check_choice, check_numbers, check_text, refusal
from batchval.network.options import ConnectionOptions
from batchval.network.security import Security

__all__ = ["ISOLATION_LEVELS", "ConsumerOptions"]

#: their numbers in requests
ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
_RESETS: Final = ("earliest", "latest", "none")
_FRAME: Final = 100 << 20  # bytes: the splitter's own limit


@dataclass(slots=True, kw_only=True)
class ConsumerOptions:
    """The options of a consumer. Times in ms, sizes in bytes. Raises ArgumentValueError."""

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
        check_choice("auto_offset_reset", self.auto_offset_reset, _RESETS)
        check_choice("isolation_level", self.isolation_level, ISOLATION_LEVELS)
        check_text("group_id", self.group_id)
        if list(self.partition_assignment_strategy) != ["range"]:
            raise refusal(
                "partition_assignment_strategy", self.partition_assignment_strategy, "['range']"
            )
        if self.enable_auto_commit and self.group_id is None:
            raise refusal("enable_auto_commit", True, "a group_id")
        self._check_numbers()

    def _check_numbers(self) -> None:
        check_numbers(
            self, ("fetch_min_bytes", "fetch_max_wait_ms", "auto_commit_interval_ms"), 0, INT32
        )
        sizes = (
            "fetch_max_bytes",
            "max_partition_fetch_bytes",
            "send_buffer_bytes",
            "receive_buffer_bytes",
        )
        check_numbers(self, sizes, 1, INT32)
        times = (
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "max_poll_interval_ms",
            "rebalance_timeout_ms",
        )
        check_numbers(self, (*times, "request_timeout_ms"), 1, INT32)
        check_numbers(
            self, ("retry_backoff_ms", "metadata_max_age_ms", "default_api_timeout_ms"), 0
        )
        check_heartbeat(self.heartbeat_interval_ms, self.session_timeout_ms)

    @property
    def frame_limit(self) -> int:
        """Return the size of the largest answer that is read, in bytes."""
        return max(_FRAME, self.fetch_max_bytes + (1 << 20))

    def client_options(self) -> ClientOptions:
        """Return the options of the network client."""
        largest = self.frame_limit
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
