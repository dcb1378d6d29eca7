"""The gate in the tree: started by the command line, ready, stopped by SIGTERM."""

from __future__ import annotations

import contextlib
import json
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tests.support.health import page
from tools.rehearsal.steps import StepFailed, expect, expect_equal
from tools.rehearsal.tree import Tree, running

START_S = 60.0
STOP_S = 30.0


@dataclass
class Gate:
    """A running gate: where clients connect, and where its metrics are."""

    process: subprocess.Popen[bytes]
    bootstrap: str
    metrics_at: str

    def metric(self, name: str) -> float:
        """Return the sum of a metric's values now; see metric_in."""
        return metric_in(page(self.metrics_at, "/metrics")[1], name)

    def stop(self) -> None:
        """Stop the gate by SIGTERM. StepFailed unless it ends with exit code 0 in time."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"the gate did not end within {STOP_S:g} s of SIGTERM") from None
        expect_equal("after SIGTERM the gate ended with exit code", code, 0)


@contextlib.contextmanager
def running_gate(tree: Tree, batchval: str, *options: str) -> Iterator[Gate]:
    """Start ``batchval proxy`` with options that choose JSON logs; yield it when it is ready.

    Without an exception in the block the gate is stopped by SIGTERM at its end, else killed.
    """
    with tree.log.open("a") as log:
        log.write(f"$ {batchval} proxy {' '.join(options)}\n")
        log.flush()
        started = tree.start(
            batchval, "proxy", *options, stdout=subprocess.PIPE, stderr=log.fileno()
        )
    with running(started) as process:
        until = time.monotonic() + START_S
        facts = _announcement(process, until)
        (listener,) = facts["listeners"].values()
        gate = Gate(process, listener, facts["metrics"])
        _await_ready(gate, until)
        yield gate
        gate.stop()


def _announcement(process: subprocess.Popen[bytes], until: float) -> dict[str, Any]:
    """Return the line that the gate prints once it listens."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], until - time.monotonic())
    expect(readable, f"the gate did not listen within {START_S:g} s")
    line = process.stdout.readline()
    if not line:  # the pipe is closed
        raise StepFailed(f"the gate ended before it listened, exit code {process.wait(STOP_S)}")
    facts: dict[str, Any] = json.loads(line)
    return facts


def _await_ready(gate: Gate, until: float) -> None:
    """Ask /readyz until it answers 200: the gate has reached the cluster."""
    answer = ""
    while time.monotonic() < until:
        expect(
            gate.process.poll() is None,
            f"the gate ended before it was ready, exit code {gate.process.returncode}",
        )
        status, answer = page(gate.metrics_at, "/readyz")
        if status == HTTPStatus.OK:
            return
        time.sleep(0.05)
    raise StepFailed(f"the gate was not ready within {START_S:g} s: {answer.strip()}")


def metric_in(text: str, name: str) -> float:
    """Return the sum of the values of a metric, over its labels: 0 before the first value.

    StepFailed where the text does not describe such a metric.
    """
    expect(f"# HELP {name} " in text, f"the gate's metrics lack {name}")
    values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}\n]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, values))
