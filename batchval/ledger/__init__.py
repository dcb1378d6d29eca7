"""Whose claims are believed (claims_ledger.py), and what of it is needed for every batch
(sender_trust.pyx).
"""

from batchval.ledger.claims_ledger import (
    DEMOTION_MS,
    FIRST_CHECKED,
    MOST_SENDERS,
    ClaimsCounts,
    ClaimsLedger,
)

__all__ = ["DEMOTION_MS", "FIRST_CHECKED", "MOST_SENDERS", "ClaimsCounts", "ClaimsLedger"]
