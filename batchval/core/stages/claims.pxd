"""Claims about a batch as Python's values."""

from batchval.core.stages.claims_block cimport Claims

cdef object batch_claims_of(const Claims *claims, tuple fields=*)
cdef tuple fields_made(const Claims *claims)
