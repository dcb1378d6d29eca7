"""Claims about a batch: made, carried and read. The engine's own file is stages/claims.pyx."""

from batchval.core.stages.claims import (
    TAG,
    BatchClaims,
    are_honest,
    attach,
    carrier_of,
    compute,
    from_tag,
    read,
    strip,
    to_tag,
)

__all__ = [
    "TAG",
    "BatchClaims",
    "are_honest",
    "attach",
    "carrier_of",
    "compute",
    "from_tag",
    "read",
    "strip",
    "to_tag",
]
