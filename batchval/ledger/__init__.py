"""The trust in senders of claims: the ledger (claims_ledger.py), and its decision for each batch
(sender_trust.pyx).
"""

from batchval.ledger.claims_ledger import (
    DEMOTION_MS,
    FIRST_CHECKED,
    MAX_SENDERS,
    ClaimsCounts,
    ClaimsLedger,
)

__all__ = ["DEMOTION_MS", "FIRST_CHECKED", "MAX_SENDERS", "ClaimsCounts", "ClaimsLedger"]
