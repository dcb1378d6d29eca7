"""Each fuzz target for half a second: nothing is found, and each finds what it is there to find."""

import json
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from batchval.core.batches.validator import LogValidator
from tests.evidence.hostile import differential, mutator, targets
from tests.evidence.hostile.buffers import PAGE, Slots, exact, guarded
from tests.evidence.hostile.covered import COVERED
from tests.evidence.hostile.mutated import KINDS
from tests.evidence.hostile.seeds import NOW, batch, record, records_in_order, seeds
from tests.evidence.hostile.targets import TARGETS, Run
from tests.evidence.reference.kafka_model import java, lz4_stream

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 0.5
SEED = 20


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in targets.POISONED])
def test_a_target_finds_nothing(target):
    run = Run(SECONDS, SEED)
    TARGETS[target](run)
    assert run.findings == []
    assert run.executions > 0


@pytest.mark.parametrize("target", targets.POISONED)
def test_a_target_of_poisoned_memory_finds_nothing(target, tmp_path):
    """Run in a separate process: it changes malloc, and looks for a crash."""
    command = [
        sys.executable,
        str(ROOT / "tests" / "evidence" / "hostile" / "fuzz.py"),
        "--target",
        target,
        "--seconds",
        str(SECONDS),
        "--seed",
        str(SEED),
    ]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


def test_targets_say_what_they_cover():
    assert set(COVERED) == set(TARGETS)


def test_the_page_names_each_target():
    page = (ROOT / "docs" / "reports" / "hostile.md").read_text("utf-8")
    assert [target for target in TARGETS if f"`{target}`" not in page] == []


def test_most_mutants_reach_the_records():
    """Count the cases beyond the checksum: a mutator without them would find nothing."""
    cases = mutator.Mutator(seeds(), SEED)
    validator = LogValidator()
    rules = [validator.check(cases.case(), now_ms=NOW).rule for _ in range(12_000)]
    early = {"2", "4", "5", "6", "8", "14"}
    assert sum(rule is None or rule.id not in early for rule in rules) > 0.4 * len(rules)
    assert {rule.id for rule in rules if rule} >= {
        "2",
        "4",
        "14",
        "23",
        "24",
        "29",
        "36",
        "S1",
        "S2",
        "S3",
        "S5",
        "S6",
        "S7",
    }


@pytest.mark.parametrize(("first", "count"), [(0, 1), (60, 70), (8000, 400), (2**20 - 9, 20)])
@pytest.mark.parametrize("value", [b"", b"v", b"x" * 600])
def test_records_in_order_are_single_records_together(first, count, value):
    single = [record(i, None, value) for i in range(first, first + count)]
    assert records_in_order(first, count, value) == b"".join(single)


def test_the_same_state_makes_the_same_cases():
    first, second = (mutator.Mutator(seeds(), 7) for _ in range(2))
    assert [first.case() for _ in range(50)] == [second.case() for _ in range(50)]
    again = mutator.Mutator(seeds(), first.state)
    assert again.case() == first.case()


def test_differences_are_found(monkeypatch):
    """Make the reference wrong about one thing: the comparison must notice."""
    real = differential.reference.validate

    def off_by_one(*arguments, **named):
        answer = real(*arguments, **named)
        return (
            differential.reference.replace(answer, max_timestamp=answer.max_timestamp + 1)
            if answer.ok
            else answer
        )

    monkeypatch.setattr(differential.reference, "validate", off_by_one)
    run = Run(30, SEED, executions=500)
    TARGETS["differential"](run)
    assert any("max_timestamp" in what for finding in run.findings for what in finding["what"])


def test_the_reference_s_fast_checksums_are_its_own():
    source = Path(java.__file__).read_text("utf-8")
    plain: dict[str, object] = {"struct": struct}
    start = source.index("def _crc32c_table")
    exec(source[start : source.index("def java_utf8")], plain)
    lz4_source = Path(lz4_stream.__file__).read_text("utf-8")
    exec(lz4_source[lz4_source.index("_P1, _P2") :], plain)
    for n in (0, 1, 3, 4, 15, 16, 17, 100, 1000):
        data = bytes(i * 7 & 255 for i in range(n))
        assert mutator.crc32c(data) == plain["crc32c"](data)
        assert mutator.xxh32(data) == plain["xxh32"](data)


# ---- buffers of exactly the right size -----------------------------------------------------------


def test_an_over_read_by_one_is_a_signal():
    """Read one byte too far: the guard page must end the process, or other tests prove nothing."""
    script = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        import ctypes
        from tests.evidence.hostile.buffers import guarded
        view = guarded(b"abc")
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        ctypes.string_at(address, int(sys.argv[1]))
    """
    run = [
        subprocess.run([sys.executable, "-c", textwrap.dedent(script), n], check=False).returncode
        for n in "34"
    ]
    assert run[0] == 0
    assert run[1] < 0


def test_every_prefix_of_every_kind_of_batch():
    validator, log = LogValidator(), LogValidator(profile="log")
    good = record(0, b"key", b"value", 3, [(b"h", b"x")])
    for data in (
        *(batch(good, 1, codec) for codec in range(5)),
        *(s for s in seeds() if 26 < len(s) < 200 and s[16] < 2),
    ):
        for n in range(len(data) + 1):
            for place in (guarded, exact):
                assert int(validator.check(place(data[:n]), now_ms=NOW).error_code) != -1
                log.check_batches(place(data[:n]))


def test_slots_end_at_forbidden_pages():
    slots = Slots(3, 100)
    assert slots.slot == PAGE
    assert slots.stride == 2 * PAGE
    assert len(slots.view) == 3 * slots.stride
    slots.view[slots.slot - 1] = 1


@pytest.mark.alone
@pytest.mark.skipif(
    os.environ.get("BATCHVAL_BUILD") == "asan", reason="AddressSanitizer handles SIGSEGV itself"
)
def test_the_fuzzer_sees_a_signal(tmp_path):
    """Kill a target: fuzz.py reports a finding, saves its input, and exits with 1."""
    script = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        import multiprocessing.connection
        from tests.evidence.hostile import fuzz, targets
        real = targets._snappy_case
        targets._snappy_case = lambda data: os.abort() if len(data) > 200 else real(data)
        sys.argv = ["fuzz.py", "--target", "snappy", "--seconds", "9", "--seed", "3", "--out", {str(tmp_path)!r}]
        sys.exit(fuzz.main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ended with -6" in done.stdout
    (saved,) = tmp_path.iterdir()
    assert f"fuzz.py --replay {saved}" in done.stdout
    (finding,) = [json.loads(line) for line in saved.read_text().splitlines()]
    assert finding["target"] == "snappy"
    assert len(finding["batch_hex"]) > 400


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in KINDS])
def test_cases_are_made_again(target, monkeypatch):
    """Make cases again from a saved place: they are those that the target ran next."""
    judged = []
    watched = {
        "differential": (
            "_differential_case",
            lambda setup, data, turn: judged.append((data, setup.cfg)),
        ),
        "core_ranges": ("_wrong_ranges", None),
        "core_entry_points": ("_walk_alone", lambda data: judged.append((data, {}))),
        "claims": (
            "claims_case",
            lambda setup, data, seed: judged.append((data, setup.cfg | {"claims_seed": seed})),
        ),
        "providers": ("_answers", lambda setup, data: judged.append((data, setup.cfg))),
        "inflate": ("_inflate_case", lambda data: judged.append((data, {}))),
        "snappy": ("_snappy_case", lambda data: judged.append((data, {}))),
        "files": ("_file_case", lambda folder, data: judged.append((data, {}))),
        "wire": ("judge", lambda number, data: judged.append((data, {"number": number}))),
    }.get(target)

    def ranges(view, pairs, cfg):
        judged.extend((targets._case(_View(view), pairs, i), cfg) for i in range(len(pairs) // 2))
        return np.zeros(1, bool)

    if watched is None:
        monkeypatch.setitem(
            targets.SEEDED, target, lambda seed: judged.append((b"", {"seed": seed}))
        )
    else:
        monkeypatch.setattr(targets, watched[0], watched[1] or ranges)
    places = []
    real_mark = Run.mark
    monkeypatch.setattr(
        Run,
        "mark",
        lambda run, mutator: (real_mark(run, mutator), places.append((*run.place, len(judged))))[0],
    )
    TARGETS[target](Run(60, SEED, executions=700))
    state, executions, at = places[2]
    again = targets.last_cases(target, SEED, (), (state, executions))
    assert len(again) >= 1
    assert [(bytes.fromhex(c["batch_hex"]), c["cfg"]) for c in again] == judged[
        at : at + len(again)
    ]


class _View:
    def __init__(self, view):
        self.view = view
