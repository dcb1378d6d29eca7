from typing import NamedTuple, Self, final

from typing_extensions import Buffer

class Counted(NamedTuple):
    records: int
    bytes: int
    batches: int
    wire_bytes: int
    requests: int
    answers: int
    latency_ns: int
    latency_ns_max: int
    lag: int
    last_ns: int

@final
class Quota:
    def __new__(cls, left: int) -> Self: ...
    @property
    def remaining(self) -> int: ...
    def take(self, most: int) -> int: ...

@final
class Receiver:
    quota: Quota | None
    def __new__(
        cls,
        version: int,
        *,
        decode: str = "headers",
        client_id: str | None = None,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 52428800,
        partition_max_bytes: int = 1048576,
        isolation: int = 0,
        check_crcs: bool = False,
        frame_limit: int = 104857600,
        quota: Quota | None = None,
    ) -> Self: ...
    def add(self, topic: str, partition: int, position: int, leader_epoch: int = -1) -> int: ...
    def seek(self, slot: int, position: int, leader_epoch: int = -1) -> None: ...
    def pause(self, slot: int, is_paused: bool) -> None: ...
    def drop(self, slot: int) -> int: ...
    def returned(self) -> list[tuple[int, int, int]]: ...
    def positions(self) -> list[tuple[int, int, int]]: ...
    def counted(self) -> Counted: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def is_under_way(self) -> bool: ...
    @property
    def throttle_ms(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    def request(self) -> bytes | None: ...
    def feed(self, data: Buffer) -> bool: ...
