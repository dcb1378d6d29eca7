from collections.abc import Iterable, Sequence
from typing import final

from typing_extensions import Buffer

from batchval.protocol.old_versions import ERROR_CODES as ERROR_CODES
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.views import FrameView

@final
class ProduceResponseView(FrameView):
    def __init__(self, frame: Buffer, api_version: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def throttle_time_ms(self) -> int: ...
    def topic(self, i: int) -> str | None: ...
    def partition(self, i: int) -> int: ...
    def error_code(self, i: int) -> int: ...
    def base_offset(self, i: int) -> int: ...

@final
class Merging: ...

def lower(
    answer: ProduceResponseView, version: int, *, correlation_id: int | None = None
) -> list[bytes | memoryview]: ...
def refuse(
    request: ProduceRequestView,
    refusals: Iterable[tuple[int, Sequence[tuple[int, str | None]], str | None]],
    *,
    correlation_id: int | None = None,
    throttle_time_ms: int = 0,
) -> list[bytes | memoryview]: ...
def merge(
    request: ProduceRequestView,
    refusals: Iterable[tuple[int, Sequence[tuple[int, str | None]], str | None] | None],
    answer: ProduceResponseView,
    *,
    correlation_id: int | None = None,
) -> list[bytes | memoryview]: ...
