"""Exit codes of every command. Where several apply: 130, 143, 4, 2, 3, 1, in this order."""

from __future__ import annotations

__all__ = ["FINDINGS", "INTERNAL", "INTERRUPTED", "TERMINATED", "UNREADABLE", "USAGE"]

FINDINGS = 1
USAGE = 2
UNREADABLE = 3
INTERNAL = 4
INTERRUPTED = 130
TERMINATED = 143
