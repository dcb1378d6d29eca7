# a base class for the views of produce: nothing of it is for Python alone (see the .pxd)
from typing_extensions import disjoint_base

@disjoint_base
class FrameView:
    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
