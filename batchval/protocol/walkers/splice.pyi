# nothing of this module is for Python: it offers a C class to its neighbours (see the .pxd)
from typing import final

@final
class Splicer: ...
