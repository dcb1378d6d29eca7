from typing import final

def kept_bytes() -> int: ...

@final
class ReceivedRecords:
    def __buffer__(self, flags: int, /) -> memoryview: ...
