from collections.abc import Callable
from typing import Literal, final

@final
class Counts:
    def as_tuple(self) -> tuple[int, int, int, int, int, int, int, int]: ...

@final
class Credit:
    def __init__(
        self,
        word: str,
        below: int,
        first_checked: int,
        demotion_ms: int,
        keyed: Callable[[int], bytes],
        totals: Counts,
    ) -> None: ...
    def decided(self, crc: int, now_ms: int) -> Literal["verify", "trust"]: ...
    def noted(self, what: int, n: int, now_ms: int) -> None: ...
    def is_demoted(self, now_ms: int) -> bool: ...
    def counts(self) -> tuple[int, int, int, int, int, int, int, int]: ...
