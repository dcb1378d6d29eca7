from collections.abc import Callable
from typing import Final

from typing_extensions import Buffer

MAX_BROKERS: Final[int]
WITH_ADDRESSES: Final[frozenset[int]]

def check_brokers(count: int) -> None: ...
def may_hold_addresses(api_key: int, api_version: int) -> bool: ...
def addresses(frame: Buffer, api_key: int, api_version: int) -> list[tuple[int, str, int]]: ...
def rewrite_addresses(
    frame: Buffer,
    api_key: int,
    api_version: int,
    replace: Callable[[int, str, int], tuple[str, int]],
    *,
    correlation_id: int | None = None,
    known: dict[bytes, bytes] | None = None,
) -> list[bytes | memoryview]: ...
