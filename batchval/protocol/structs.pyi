from collections.abc import Callable
from dataclasses import Field
from typing import Any, final

from batchval.protocol.errors import ProtocolError
from batchval.protocol.primitives import Reader, Writer

def absent(name: str, version: int) -> ProtocolError: ...

@final
class StructLayout:
    def __init__(
        self,
        kind: type[Any],
        fields: dict[str, Field[Any]],
        rows: Callable[[int], list[tuple[Any, ...]]],
    ) -> None: ...
    @property
    def fields(self) -> dict[str, Field[Any]]: ...
    def read(self, kind: type[Any], r: Reader, version: int) -> Any: ...
    def write(self, it: object, w: Writer, version: int) -> None: ...
