from typing import final

# The bytes of a rebuilt batch on their way to the codec; nothing makes one from Python.
@final
class Written:
    def __buffer__(self, flags: int, /) -> memoryview: ...
