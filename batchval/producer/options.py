"""What a producer can be told, in Kafka's words (producer configurations, with underscores), and how it is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

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
    """Kafka's defaults. Sizes in bytes, times in milliseconds. ValueError for what does not fit together.

    ``enable_idempotence`` None: wherever the other options allow it (acks -1, at most five in flight, retries).
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
        self._check_numbers()
        names = [member.name.lower() for member in CompressionType]
        if self.compression_type not in names:
            raise ValueError(f"compression_type must be one of {', '.join(names)}, not {self.compression_type!r}")
        if self.partitioner not in PARTITIONERS:
            raise ValueError(f"partitioner must be one of {', '.join(PARTITIONERS)}, not {self.partitioner!r}")
        if self.claims not in ("none", "tag", "payload"):
            raise ValueError(f"claims must be none, tag or payload, not {self.claims!r}")
        if self.claims_schema_ids and self.claims == "none":
            raise ValueError("claims_schema_ids needs claims to be tag or payload, not 'none'")
        if self.compression_level is not None:
            low, high = _LEVELS.get(self.codec, (0, -1))
            if not low <= self.compression_level <= high:
                allowed = f"{low} to {high}" if high >= low else "none"
                raise ValueError(f"compression_level of {self.compression_type}: {allowed}")
        self._check_idempotence()

    def _check_numbers(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise ValueError(f"acks must be -1 (all), 1 or 0, not {self.acks}")
        for name in ("batch_size", "linger_ms", "retries", "retry_backoff_ms", "max_block_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be below 0")
        if not 0 <= self.compression_threads <= 64:
            raise ValueError("compression_threads must be 0 to 64")
        for name in ("buffer_memory", "max_request_size", "max_in_flight", "request_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
        for name in ("batch_size", "max_request_size", "max_in_flight", "transaction_timeout_ms"):
            if getattr(self, name) > 0x7FFFFFFF:
                raise ValueError(f"{name} must be below 2^31")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ValueError("delivery_timeout_ms must not be below linger_ms + request_timeout_ms")

    def _check_idempotence(self) -> None:
        obstacle = ""
        if self.acks != -1:
            obstacle = "acks -1 (all)"
        elif self.max_in_flight > _SENT_WITHOUT_WAITING:
            obstacle = f"max_in_flight of at most {_SENT_WITHOUT_WAITING}"
        elif self.retries == 0:
            obstacle = "retries above 0"
        if self.enable_idempotence is None:
            self.enable_idempotence = not obstacle
        if self.enable_idempotence and obstacle:
            raise ValueError(f"enable_idempotence needs {obstacle}")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ValueError("transactional_id needs enable_idempotence")
        if self.transactional_id == "":
            raise ValueError("transactional_id must not be empty")

    @property
    def codec(self) -> CompressionType:
        """The number of compression_type."""
        return CompressionType[self.compression_type.upper()]

    @property
    def may_reorder(self) -> bool:
        """Whether a retry can put a batch behind a later one."""
        return (
            not self.enable_idempotence
            and self.max_in_flight > 1
            and not self.mute_partitions
            and self.retries > 0
            and self.acks != 0
        )
