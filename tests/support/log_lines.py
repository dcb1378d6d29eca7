"""Parse the gate's log lines into facts."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["ended", "facts"]


def facts(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return the facts of each line of one event."""
    return [record.__dict__["facts"] for record in caplog.records if record.getMessage() == event]


def ended(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the facts of the lines about ended connections."""
    return facts(caplog, "connection ended")
