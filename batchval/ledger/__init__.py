"""Whose claims are believed (books.py), and what of it is needed for every batch (credit.pyx)."""

from batchval.ledger.books import DEMOTION_MS, FIRST_CHECKED, MOST_SENDERS, ClaimsCounts, ClaimsLedger

__all__ = ["DEMOTION_MS", "FIRST_CHECKED", "MOST_SENDERS", "ClaimsCounts", "ClaimsLedger"]
