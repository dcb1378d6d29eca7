"""The files of a quarantine, as ``batchval check`` and ``batchval dump`` read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchval.proxy.produce.quarantine import QuarantineFolder, QuarantineWriter
from batchval.proxy.settings.options import Refusal
from tests.support.batches import batch, message, records
from tests.unit.cli.conftest import Ran

GOOD = batch(records(3))


def damaged(good: bytes) -> bytes:
    return good[:-1] + bytes([good[-1] ^ 1])


CASES = {
    "bad": (damaged(GOOD), 1),
    "good": (GOOD, 0),
    "old": (damaged(message(1)), 1),
    "cut": (GOOD[:40], 1),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("quarantine")
    quarantine = QuarantineWriter(QuarantineFolder(folder, 1 << 20))
    quarantine.start()
    for name, (data, _) in CASES.items():
        one = Refusal(
            "edge", "10.0.0.7:1", None, name, 0, "crc-mismatch", "CORRUPT_MESSAGE", "why", True
        )
        quarantine.take(one, memoryview(data), {})
    quarantine.stop()
    return {path.name.split("-")[1]: str(path) for path in folder.glob("*.log")}


@pytest.mark.parametrize("name", CASES)
def test_check(run: Callable[..., Ran], files: dict[str, str], name: str) -> None:
    _, code = CASES[name]
    for arguments in ((), ("--as", "produce")):
        ran = run("check", *arguments, files[name])
        assert ran.code == code, ran
        if name == "bad":
            assert "crc-mismatch" in ran.out


def test_check_takes_them_all(run: Callable[..., Ran], files: dict[str, str]) -> None:
    assert run("check", *files.values()).code == 1


@pytest.mark.parametrize("name", ["bad", "good", "old"])
def test_dump(run: Callable[..., Ran], files: dict[str, str], name: str) -> None:
    ran = run("dump", files[name])
    assert ran.code == CASES[name][1], ran
    assert "magic" in ran.out
