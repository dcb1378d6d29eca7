from typing import Final

from typing_extensions import Buffer

BROKER_APIS: Final[frozenset[int]]
SHARED_WITH_BROKERS: Final[frozenset[int]]

def is_from_broker(frame: Buffer) -> bool: ...
