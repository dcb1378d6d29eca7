"""``python tests/evidence/hostile/fuzz.py --seconds 60``: every target for so long; exit 1 on
findings.

Each target runs in a process of its own, so that a signal is a finding too. Inputs that break a
promise are JSON lines in ``--out``, each file with the command that judges it again
(``--replay FILE``). ``--corpus`` adds seeds (files in the form of the conformance corpus).
``--everything`` goes on to bombs.py, sanitizers.py, tests/evidence/hostile_gate/bomb_costs.py and
tests/evidence/hostile_gate.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

_REPORT_EVERY = 60.0
_SHOWN = 5


def _cpu_seconds() -> float:
    """Return the CPU time of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _work(  # type: ignore[no-untyped-def]
    target: str,
    arguments: argparse.Namespace,
    place,
    sender,
) -> None:
    from tests.evidence.hostile.targets import POISONED, TARGETS, Run
    from tests.evidence.hostile.writers import poison_memory

    if target in POISONED:
        poison_memory()
    run = Run(
        arguments.seconds,
        arguments.seed,
        tuple(arguments.corpus),
        arguments.executions,
        place,
        arguments.operation,
        arguments.cpu_seconds,
    )
    last = time.monotonic()
    looked = run.going_on

    def going_on() -> bool:
        nonlocal last
        place[2] = int(_cpu_seconds() * 1000)
        if time.monotonic() - last > _REPORT_EVERY:
            last = time.monotonic()
            sender.send(("so far", run.executions, run.findings))
            run.findings = []
        return looked()

    run.going_on = going_on  # type: ignore[method-assign]
    TARGETS[target](run)
    place[2] = int(_cpu_seconds() * 1000)
    place[3] = run.writes
    sender.send(("done", run.executions, run.findings))


def _validate_quietly(case: dict[str, object]) -> None:
    from tests.evidence.hostile.targets import POISONED, replay
    from tests.evidence.hostile.writers import poison_memory

    if case["target"] in POISONED:
        poison_memory()
    replay(case)


def _measurement(ended: list[_Worker], seed: int) -> dict[str, object]:
    """Return what ran, as docs/reports/hostile-runs.md has it."""
    from tests.evidence.hostile.targets import TARGETS

    rows = sorted(ended, key=lambda worker: list(TARGETS).index(worker.target))
    hours = sum(worker.place[2] for worker in ended) / 3_600_000
    headings = ["target", "executions", "CPU seconds", "writes to buffers in use", "findings"]
    return {
        "title": f"Seed {seed}, {len(rows)} targets",
        "about": [f"{hours:.2f} CPU hours."],
        "tables": [
            {"headings": headings, "rows": [worker.row() for worker in rows], "total": True}
        ],
    }


class _Worker:
    """One target's process."""

    def __init__(self, target: str, arguments: argparse.Namespace) -> None:
        self.target, self.seed = target, arguments.seed
        self.executions, self.findings = 0, []  # type: ignore[var-annotated]
        self.done = False
        self.started = time.monotonic()
        self.corpus = tuple(arguments.corpus)
        # the mutator's state, executions, CPU time in ms, writes to buffers in use
        self.place = multiprocessing.RawArray("Q", 4)
        self.receiver, sender = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.Process(
            target=_work, args=(target, arguments, self.place, sender)
        )
        self.process.start()
        sender.close()

    def _died(self) -> dict[str, object]:
        """Return the input that ended the process, if that input alone ends it again."""
        from tests.evidence.hostile.mutated import KINDS
        from tests.evidence.hostile.targets import last_cases

        what = [f"the process ended with {self.process.exitcode}"]
        for case in last_cases(self.target, self.seed, self.corpus, (self.place[0], self.place[1])):
            again = multiprocessing.Process(target=_validate_quietly, args=(case,))
            again.start()
            again.join()
            if again.exitcode:
                return {**case, "what": what}
            if self.target in KINDS:  # how two threads meet is chance
                return {**case, "what": [f"{what[0]}; a replay of some seconds did not"]}
        state = {"seed": self.seed, "state": self.place[0], "executions": self.place[1]}
        return {"target": self.target, "what": what, "cfg": state, "batch_hex": ""}

    def listen(self, out: Path | None) -> None:
        """Wait for the next word; an end without one is a signal or a crash."""
        try:
            word, self.executions, findings = self.receiver.recv()
            self.done = word == "done"
        except EOFError:
            self.process.join()
            self.executions = max(self.executions, self.place[1])
            findings = [self._died()]
            self.done = True
        self.findings += findings
        if out and findings:
            out.mkdir(parents=True, exist_ok=True)
            path = out / f"{self.target}-{self.seed}.jsonl"
            with path.open("a", encoding="utf-8") as lines:
                lines.writelines(json.dumps(finding) + "\n" for finding in findings)
            print(
                f"again: {sys.executable} tests/evidence/hostile/fuzz.py --replay {path}",
                flush=True,
            )
        seconds = time.monotonic() - self.started
        rate = f"{self.executions:,} executions in {seconds:.0f} s ({self.executions / seconds:,.0f}/s)"
        writes = f", {self.place[3]:,} writes to buffers in use" if self.place[3] else ""
        print(f"{self.target}: {rate}{writes}, {len(self.findings)} findings", flush=True)

    def row(self) -> list[str | int | None]:
        """Return a row of the table in docs/reports/hostile-runs.md."""
        cpu, writes = self.place[2] // 1000, self.place[3] or None
        return [f"`{self.target}`", self.executions, cpu, writes, len(self.findings)]


def _replay(paths: list[Path]) -> int:
    from tests.evidence.hostile.targets import replay

    left = 0
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            finding = json.loads(line)
            what = replay(finding)
            left += bool(what)
            if what:
                print(finding["target"], what)
    print(f"replay: {left} findings are left")
    return 1 if left else 0


def main() -> int:
    from bench.pages import reports
    from tests.evidence.hostile.targets import TARGETS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--executions", type=int, help="stop a target earlier, after so many")
    parser.add_argument(
        "--target", action="append", choices=list(TARGETS), help="again for each; default: all"
    )
    parser.add_argument(
        "--operation", help="of the targets that change buffers in use: this one alone"
    )
    parser.add_argument(
        "--cpu-hours",
        type=float,
        help="of all targets together, each its share; --seconds is ignored",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="add executions, CPU time and findings of each target to docs/reports/hostile-runs",
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument(
        "--out", type=Path, default=Path("build/hostile"), help="folder for reproducers"
    )
    parser.add_argument("--corpus", type=Path, action="append", default=[])
    parser.add_argument("--replay", type=Path, action="append", default=[])
    parser.add_argument(
        "--everything",
        action="store_true",
        help="bombs, sanitizers and hostile clients of a gate too",
    )
    arguments = parser.parse_args()
    if arguments.replay:
        return _replay(arguments.replay)
    run = reports.here() if arguments.report else {}
    print(f"seed {arguments.seed}", flush=True)
    waiting = list(arguments.target or TARGETS)
    arguments.cpu_seconds = None
    if arguments.cpu_hours is not None:
        arguments.seconds, arguments.cpu_seconds = (
            math.inf,
            arguments.cpu_hours * 3600 / len(waiting),
        )
    running: list[_Worker] = []
    ended: list[_Worker] = []
    findings = executions = 0
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            running.append(_Worker(waiting.pop(0), arguments))
        for worker in multiprocessing.connection.wait([w.receiver for w in running], 1.0):
            one = next(w for w in running if w.receiver is worker)
            one.listen(arguments.out)
            if not one.done:
                continue
            one.process.join()
            running.remove(one)
            ended.append(one)
            findings += len(one.findings)
            executions += one.executions
            for finding in one.findings[:_SHOWN]:
                print("  ", finding["what"], finding["batch_hex"][:200], finding.get("cfg", {}))
    print(f"hostile: {executions:,} executions, {findings} findings")
    if arguments.report:
        reports.save("hostile-runs", run | _measurement(ended, arguments.seed))
    if arguments.everything:
        here = Path(__file__).parent
        programs = (
            [str(here / "bombs.py")],
            [str(here / "sanitizers.py")],
            ["-m", "tests.evidence.hostile_gate.bomb_costs"],
            ["-m", "tests.evidence.hostile_gate"],
            ["-m", "tests.evidence.hostile_gate.fair_shares"],
        )
        findings += sum(map(_ended_badly, programs))
        print(f"make hostile: {'all is well' if not findings else 'something was found'}")
    return 1 if findings else 0


def _ended_badly(program: list[str]) -> bool:
    print(flush=True)
    root = Path(__file__).resolve().parents[3]
    return bool(subprocess.run([sys.executable, *program], cwd=root, check=False).returncode)


if __name__ == "__main__":
    import multiprocessing.connection

    sys.exit(main())
