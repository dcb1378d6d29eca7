from typing import final

# What rebuilds a batch; both hold C memory and do nothing from Python.
@final
class Out: ...

@final
class Builder: ...
