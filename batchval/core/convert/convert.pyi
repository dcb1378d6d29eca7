from typing import final

# The bytes of a rebuilt batch on their way to the codec; Python code does not make one.
@final
class Written:
    def __buffer__(self, flags: int, /) -> memoryview: ...
