from typing import Any, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

# on Python 3.11 numpy's own types do not say that an array is a buffer
_Buffer: TypeAlias = Buffer | NDArray[Any]

def murmur2(data: _Buffer) -> int: ...
def partition_of(key: _Buffer, partitions: int) -> int: ...
