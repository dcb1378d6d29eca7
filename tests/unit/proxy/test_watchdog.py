"""A worker whose event loop stands still ends by itself; one that was frozen goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from batchval.proxy.workers.watchdog import LOOKS, Watchdog

STUCK_S = 0.3
SCRIPT = f"""
import re, sys, time
from batchval.proxy.workers.watchdog import Watchdog

def turn_until_asked():
    import select
    while not select.select([0], [], [], 0.01)[0]:
        watchdog.turned()

def be_stuck():
    if sys.argv[1] == "waits":
        time.sleep(60)
    re.match("(a+)+$", "a" * 64 + "b")  # keeps the GIL

watchdog = Watchdog({STUCK_S})
watchdog.start()
print("watched", flush=True)
turn_until_asked()
be_stuck()
"""


def test_looks_are_counted_from_the_last_turn() -> None:
    watchdog = Watchdog(60)
    for _ in range(2):
        assert not any(watchdog.look() for _ in range(LOOKS))
        watchdog.turned()
    assert [watchdog.look() for _ in range(LOOKS + 1)] == [False] * LOOKS + [True]
    signal.setitimer(signal.ITIMER_PROF, 0)


def test_a_stuck_one_ends_where_nobody_reads_stderr() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "waits"], text=True, stderr=writer, **pipes
    ) as process:
        os.close(writer)
        process.communicate("\n", timeout=60)
    assert process.returncode == 1


@pytest.mark.alone
@pytest.mark.parametrize(("how", "code"), [("waits", 1), ("spins", -signal.SIGPROF)])
def test_a_frozen_process_goes_on_and_a_stuck_one_ends(how: str, code: int) -> None:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", SCRIPT, how], text=True, **pipes) as process:
        assert process.stdout.readline() == "watched\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(STUCK_S + 0.1)
        process.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        _, stacks = process.communicate("\n", timeout=60)
    assert process.returncode == code
    assert "in be_stuck" in stacks
