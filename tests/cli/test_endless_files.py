"""Files without an end that options name: each command refuses them after a bounded read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Ran

_PRODUCE = ("perf", "produce", "--bootstrap-server", "127.0.0.1:1", "--topic", "t")
_ONE = ("--num-records", "1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("perf", "merge", "/dev/zero"),
        ("perf", "compare", "/dev/zero", "/dev/zero"),
        (*_PRODUCE, *_ONE, "--payload-file", "/dev/zero"),
        (*_PRODUCE, *_ONE, "--record-size", "1", "--command-config", "/dev/zero"),
        ("check", "--record-rules", "/dev/zero", "."),
    ],
)
def test_a_device_without_an_end_is_refused(
    run: Callable[..., Ran], arguments: tuple[str, ...]
) -> None:
    result = run(*arguments)
    assert result.code in (2, 3), result
    assert "longer than 16777216 bytes" in result.err
