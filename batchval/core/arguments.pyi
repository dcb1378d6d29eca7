from typing import final

@final
class CompiledPolicy: ...
