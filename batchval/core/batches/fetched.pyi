from typing import Literal, NamedTuple

from typing_extensions import Buffer

class Fetched(NamedTuple):
    records: int
    key_value_bytes: int
    next_offset: int
    batches: int
    wire_bytes: int
    end: int

def walk_fetched(
    buffer: Buffer,
    fetch_offset: int = 0,
    decode: Literal["records", "headers"] | str = "records",
    check_crcs: bool = False,
    *,
    max_decompressed_bytes: int = 67108864,
) -> Fetched: ...
