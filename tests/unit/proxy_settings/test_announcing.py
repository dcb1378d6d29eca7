"""The line with the addresses, on a standard output that nobody reads: the gate goes on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from batchval.cli.proxy import _announce
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.settings.setting_types import Address


def broken_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("output", [broken_pipe, full_disk])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_output_that_fails(
    output: Callable[[], int],
    log_format: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = SimpleNamespace(addresses={"default": Address("127.0.0.1", 9092)}, metrics_at=None)
    settings = settings_from(
        {
            "listeners": [{"address": "127.0.0.1:0"}],
            "upstream": {"bootstrap": "127.0.0.1:1"},
            "log": {"format": log_format},
        }
    )
    with open(output(), "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        _announce(gate, settings)
        stdout.flush()  # as the interpreter does at its end
    assert "standard output cannot be written: " in caplog.text
