"""Options of a producer: Kafka's producer configurations, with underscores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from batchval.errors import shown_ms
from batchval.network.client import ClientOptions
from batchval.network.cluster_metadata import bootstrap_nodes
from batchval.network.network_client import NetworkOptions
from batchval.network.option_checks import INT32, check_choice, check_numbers, check_text, refusal
from batchval.network.options import ConnectionOptions
from batchval.network.security import Security
from batchval.types import CompressionType

__all__ = ["ProducerOptions"]

PARTITIONERS: Final = ("default", "round_robin", "manual", "murmur2")
_LEVELS: Final = {
    CompressionType.GZIP: (-1, 9),
    CompressionType.LZ4: (1, 17),
    CompressionType.ZSTD: (-131072, 22),
}
_SENT_WITHOUT_WAITING: Final = 5  # how many batches of a producer a broker remembers


@dataclass(slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer, with Kafka's defaults. Sizes in bytes, times in milliseconds.
    Raises ArgumentValueError.

    ``enable_idempotence`` None: wherever the other options allow it (acks -1, at most five in
    flight, retries).
    ``retries`` counts per batch; delivery_timeout_ms ends them in any case.
    """

    bootstrap_servers: Sequence[str] = ("localhost:9092",)
    client_id: str = "batchval-producer"
    acks: int = -1
    linger_ms: float = 5
    batch_size: int = 16_384
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    max_in_flight: int = 5
    compression_type: str = "none"
    compression_level: int | None = None
    compression_threads: int = 2  # for batches that take long to compress; 0: all in the loop
    enable_idempotence: bool | None = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    retries: int = 0x7FFFFFFF
    delivery_timeout_ms: float = 120_000
    request_timeout_ms: float = 30_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1_000
    max_block_ms: float = 60_000
    metadata_max_age_ms: float = 300_000
    partitioner: str = "default"
    mute_partitions: bool = False
    claims: str = "none"
    claims_schema_ids: bool = False  # claims state the ids at the start of the values
    security: Security = field(default_factory=Security)
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    on_wire: Callable[[int, int, int], None] | None = None  # see ConnectionOptions

    def __post_init__(self) -> None:
        if isinstance(self.bootstrap_servers, str):
            self.bootstrap_servers = [self.bootstrap_servers]
        bootstrap_nodes(self.bootstrap_servers)
        self._check_numbers()
        check_choice(
            "compression_type", self.compression_type, [one.name.lower() for one in CompressionType]
        )
        check_choice("partitioner", self.partitioner, PARTITIONERS)
        check_choice("claims", self.claims, ("none", "tag", "payload"))
        if self.claims_schema_ids and self.claims == "none":
            raise refusal("claims_schema_ids", True, "claims to be tag or payload, not none")
        if self.compression_level is not None:
            if self.codec not in _LEVELS:
                raise refusal(
                    "compression_level",
                    self.compression_level,
                    f"none with {self.compression_type}",
                )
            check_numbers(self, ("compression_level",), *_LEVELS[self.codec])
        self._check_idempotence()

    def _check_numbers(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise refusal("acks", self.acks, "-1 (all), 1 or 0")
        times = (
            "linger_ms",
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "max_block_ms",
            "metadata_max_age_ms",
        )
        check_numbers(self, times, 0, whole=False)
        check_numbers(self, ("request_timeout_ms",), 1, INT32, whole=False)
        check_numbers(self, ("batch_size", "retries"), 0, INT32)
        check_numbers(
            self, ("max_request_size", "max_in_flight", "transaction_timeout_ms"), 1, INT32
        )
        check_numbers(self, ("send_buffer_bytes", "receive_buffer_bytes"), 1, INT32)
        check_numbers(self, ("buffer_memory",), 1)
        check_numbers(self, ("compression_threads",), 0, 64)
        least = self.linger_ms + self.request_timeout_ms
        if not self.delivery_timeout_ms >= least:
            expected = f"at least linger_ms + request_timeout_ms, {shown_ms(least)}"
            raise refusal("delivery_timeout_ms", self.delivery_timeout_ms, expected)

    def _check_idempotence(self) -> None:
        obstacle = ""
        if self.acks != -1:
            obstacle = f"acks -1 (all), not {self.acks}"
        elif self.max_in_flight > _SENT_WITHOUT_WAITING:
            obstacle = f"max_in_flight of at most {_SENT_WITHOUT_WAITING}, not {self.max_in_flight}"
        elif self.retries == 0:
            obstacle = "retries above 0"
        if self.enable_idempotence is None:
            self.enable_idempotence = not obstacle
        if self.enable_idempotence and obstacle:
            raise refusal("enable_idempotence", True, obstacle)
        check_text("transactional_id", self.transactional_id)
        if self.transactional_id is not None and not self.enable_idempotence:
            raise refusal(
                "transactional_id", self.transactional_id, "enable_idempotence to be True"
            )

    def client_options(self) -> ClientOptions:
        """Return the options of the network client."""
        connection = ConnectionOptions(
            max_in_flight=self.max_in_flight,
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            ssl=self.security.ssl_context,
            send_buffer_bytes=self.send_buffer_bytes,
            receive_buffer_bytes=self.receive_buffer_bytes,
            on_wire=self.on_wire,
        )
        return ClientOptions(
            network=NetworkOptions(connection=connection, authenticate=self.security.authenticate),
            retry_backoff_ms=self.retry_backoff_ms,
            request_timeout_ms=self.request_timeout_ms,
        )

    @property
    def codec(self) -> CompressionType:
        """Return compression_type as its number in a record batch."""
        return CompressionType[self.compression_type.upper()]

    @property
    def may_reorder(self) -> bool:
        """Return whether a retry can move a batch after a later one."""
        return (
            not self.enable_idempotence
            and self.max_in_flight > 1
            and not self.mute_partitions
            and self.retries > 0
            and self.acks != 0
        )
