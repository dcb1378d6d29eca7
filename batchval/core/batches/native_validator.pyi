from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

from batchval.core.batches.validator import LogValidator

# on Python 3.11 numpy's own types do not say that an array is a buffer
_Buffer: TypeAlias = Buffer | NDArray[Any]

# what else the module has are C functions for native callers (see the .pxd)
def settled_by_claims(
    validator: LogValidator, batch: _Buffer, tag: _Buffer | None, now_ms: int, produce_version: int
) -> bool: ...
