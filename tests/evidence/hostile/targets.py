"""The targets: each runs for some seconds and yields what it found.

A finding is a broken promise: two answers that differ, a -1 in strict mode, an exception. (A signal
ends the process: the runner sees that, and the state it printed repeats the run.)
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import snappy

from batchval import compression
from batchval.core.batches.batch import RecordBatch, batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.record_columns import RecordColumns, RecordRow, record_columns
from batchval.core.batches.validator import LogValidator
from batchval.core.codecs.gzip import inflate
from batchval.core.codecs.snappy import decode
from batchval.errors import NotABatch
from batchval.policy import TopicPolicy
from batchval.segment.check import Options, Summary, check_paths
from batchval.segment.reader import SegmentFile
from batchval.segment.search_window import resynchronise
from tests.evidence.hostile.answers import fetch_case
from tests.evidence.hostile.buffers import Slots, buffer_of
from tests.evidence.hostile.built import builder_case
from tests.evidence.hostile.claims import claims_case
from tests.evidence.hostile.client_answers import client_case
from tests.evidence.hostile.connected import connected_case
from tests.evidence.hostile.differential import (
    RULES,
    Setup,
    compare,
    compare_strict,
    setups,
    strict_invariants,
)
from tests.evidence.hostile.down import down_case
from tests.evidence.hostile.durations import durations_case
from tests.evidence.hostile.fast_path import fast_path_case
from tests.evidence.hostile.latencies import histogram_case
from tests.evidence.hostile.lifetimes import lifetime_case
from tests.evidence.hostile.mutated import KINDS, describe, mutated, replay_mutated
from tests.evidence.hostile.mutator import MAX_CASE_BYTES, Mutator
from tests.evidence.hostile.old_produce import old_produce_case
from tests.evidence.hostile.old_versions import old_versions_case
from tests.evidence.hostile.plain_answers import plain_case
from tests.evidence.hostile.received import received_case
from tests.evidence.hostile.seeds import deflate_seeds, seeds, snappy_seeds
from tests.evidence.hostile.streams import stream_case
from tests.evidence.hostile.verdicts import verdicts_case
from tests.evidence.hostile.wire import Frames, judge
from tests.evidence.reference.kafka_model.java import JavaError
from tests.evidence.reference.kafka_model.snappy_stream import decode_block

__all__ = ["POISONED", "TARGETS", "Finding", "Run", "last_cases", "replay"]

Finding = dict[str, Any]
_EVERY = 64  # cases between two looks at the clock
_SLOTS = 128


class Run:
    """One target's clock, counter and findings."""

    def __init__(
        self,
        seconds: float,
        seed: int,
        extra: tuple[Path, ...] = (),
        executions: int | None = None,
        place: Any = None,
        only: str | None = None,
        cpu_seconds: float | None = None,
    ) -> None:
        self.seed = seed
        self.only = only  # of the targets that have operations: this one alone
        self.writes = 0  # to a buffer in use, by another thread or process
        self.extra = extra
        # shared with the runner: the mutator's state, executions
        self.place = [0, 0] if place is None else place
        self.executions = 0
        self.findings: list[Finding] = []
        self._most = executions
        self._seconds = seconds
        self._end: float | None = None  # set with the first case: reading the seeds takes time
        self._cpu_end = None if cpu_seconds is None else time.process_time() + cpu_seconds

    def going_on(self) -> bool:
        if self._cpu_end is not None and time.process_time() >= self._cpu_end:
            return False
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        return time.monotonic() < self._end and (self._most is None or self.executions < self._most)

    def mark(self, mutator: Mutator | Frames | _Numbers) -> None:
        """Save where the next cases begin, so that they can be made again if one ends the
        process.
        """
        self.place[0] = mutator.state
        self.place[1] = self.executions

    def found(
        self, target: str, data: bytes, what: list[str], cfg: dict[str, Any] | None = None
    ) -> None:
        self.findings.append(
            {"target": target, "what": what, "cfg": cfg or {}, "batch_hex": bytes(data).hex()}
        )

    def mutator(self, corpus: list[bytes] | None = None) -> Mutator:
        return Mutator(corpus or seeds(self.extra), self.seed)


def _guard(
    run: Run,
    target: str,
    data: bytes,
    check: Callable[[], list[str]],
    cfg: dict[str, Any] | None = None,
) -> None:
    try:
        what = check()
    except Exception as error:
        what = [f"exception {type(error).__name__}: {error}"]
    if what:
        run.found(target, data, what, cfg)


# ---- core and the reference ----------------------------------------------------------------------


def _differential_case(setup: Setup, data: bytes, turn: int) -> list[str]:
    found = compare(setup, data)
    if turn % 4 == 0:
        found += compare_strict(setup, data)
    return found + strict_invariants(setup, data)


def differential(run: Run) -> None:
    """Compare stages, outputs, in-place writes and strict mode with tests/evidence/reference."""
    mutator = run.mutator()
    configured = setups(run.seed)
    while run.going_on():
        run.mark(mutator)
        for _ in range(_EVERY):
            data = mutator.case()
            setup = configured[run.executions % len(configured)]
            turn = run.executions
            _guard(
                run,
                "differential",
                data,
                lambda s=setup, d=data, t=turn: _differential_case(s, d, t),
                setup.cfg,
            )  # type: ignore[misc]
            run.executions += 1


def claimed(run: Run) -> None:
    """Compare true and false claims in tags and headers with the answers without claims."""
    mutator = run.mutator()
    configured = setups(run.seed)
    while run.going_on():
        run.mark(mutator)
        for _ in range(_EVERY):
            data = mutator.case()
            setup = configured[run.executions % len(configured)]
            seed = run.seed + run.executions
            cfg = setup.cfg | {"claims_seed": seed}
            _guard(run, "claims", data, lambda s=setup, d=data, n=seed: claims_case(s, d, n), cfg)  # type: ignore[misc]
            run.executions += 1


# ---- core alone ----------------------------------------------------------------------------------


def _ranges(run: Run) -> Iterator[tuple[Slots, np.ndarray, Mutator]]:
    mutator = run.mutator()
    slots = Slots(_SLOTS, MAX_CASE_BYTES)
    pairs = (ctypes.c_int64 * (2 * _SLOTS))()
    as_array = np.frombuffer(pairs, "<i8")
    while run.going_on():
        for _ in range(8):
            run.mark(mutator)
            mutator.fill(slots, pairs)
            yield slots, as_array, mutator


def _case(slots: Slots, pairs: np.ndarray, i: int) -> bytes:
    return bytes(slots.view[int(pairs[2 * i]) : int(pairs[2 * i] + pairs[2 * i + 1])])


_RANGE_POLICIES = (
    TopicPolicy(),
    TopicPolicy(cleanup_policy="compact", message_timestamp_before_max_ms=1000),
    TopicPolicy(compression_type="lz4", max_decompressed_message_bytes=100),
    TopicPolicy(compression_type="uncompressed", message_timestamp_type="LogAppendTime"),
    TopicPolicy(record_rules=RULES),
)
_RANGE_ORIGINS = ("CLIENT", "CLIENT", "REPLICATION", "COORDINATOR", "RAFT_LEADER")


def _range_cfg(turn: int) -> dict[str, Any]:
    return {
        "policy": turn % len(_RANGE_POLICIES),
        "origin": _RANGE_ORIGINS[turn % len(_RANGE_ORIGINS)],
        "to_magic": (2, 2, 1, 0)[turn // 7 % 4],
    }


@functools.cache
def _range_validators(policy: int) -> tuple[LogValidator, LogValidator]:
    chosen = _RANGE_POLICIES[policy]
    return LogValidator(chosen, max_decompressed_bytes=1 << 20), LogValidator(chosen, mode="kafka")


def _wrong_ranges(view: memoryview, pairs: Any, cfg: dict[str, Any]) -> np.ndarray:
    """Return the ranges that break a promise: -1 in strict, or strict accepts and kafka refuses."""
    arguments = {"now_ms": 1_700_000_000_000, "origin": cfg["origin"], "to_magic": cfg["to_magic"]}
    strict, kafka = _range_validators(cfg["policy"])
    a = strict.check_ranges(view, pairs, **arguments)
    b = kafka.check_ranges(view, pairs, **arguments)
    return (a["error_code"] == -1) | ((a["rule"] == 0) & (b["rule"] != 0)) | (a["rule"] < 0)


def core_ranges(run: Run) -> None:
    """Run check_ranges in both modes over slots that end at forbidden pages."""
    for turn, (slots, pairs, _) in enumerate(_ranges(run)):
        cfg = _range_cfg(turn)
        for i in np.flatnonzero(_wrong_ranges(slots.view, pairs, cfg)):
            what = ["-1 in strict, or strict accepts and kafka refuses"]
            run.found("core_ranges", _case(slots, pairs, int(i)), what, cfg)
        run.executions += _SLOTS


def _walk_alone(data: bytes) -> list[str]:
    """Run the entry points for one buffer that are not part of the three stages."""
    found = []
    log = LogValidator(profile="log", max_decompressed_bytes=1 << 20)
    result = log.check(buffer_of(data))
    if int(result.error_code) == -1:
        found.append(f"log profile answers -1: {result}")
    log.check_batches(buffer_of(data))
    for row in log.with_policy(_RANGE_POLICIES[-1]).check_batches(buffer_of(data)).rows():
        str(row)
    log.check_batches(buffer_of(data), deep=False, trust_claims=(0.5, bytes(16)))
    columns = scan_batches(buffer_of(data))
    for row in columns.rows():
        str(row)
    columns.to_arrow().validate(full=True)
    resynchronise(buffer_of(data))
    # magic 3 carries claims, of which columns know nothing
    whole = sum(
        b.size_in_bytes
        for b in itertools.takewhile(lambda b: b.magic < 3, batches(buffer_of(data)))
    )
    if whole > columns.end:
        found.append(f"batches() finds {whole} bytes, scan_batches {columns.end}")
    try:
        for record in RecordBatch(buffer_of(data)).records(max_decompressed_bytes=1 << 20):
            bytes(record.key or b""), bytes(record.value or b"")
    except NotABatch:
        pass
    return found + _columns_alone(data)


def _columns_alone(data: bytes) -> list[str]:
    """Return whether record_columns and RecordBatch disagree about a batch."""
    with contextlib.suppress(NotABatch):
        record_columns(buffer_of(data), max_decompressed_bytes=1 << 20).__arrow_c_array__()
    for batch in batches(buffer_of(data)):
        rows: list[RecordRow] | None = None
        columns: RecordColumns | None = None
        with contextlib.suppress(NotABatch):
            rows = [
                RecordRow(0, r.offset, r.timestamp, r.key, r.value, len(r.headers))
                for r in batch.records(max_decompressed_bytes=1 << 20)
            ]
        with contextlib.suppress(NotABatch):
            columns = record_columns(
                buffer_of(bytes(batch)), check_crcs=False, max_decompressed_bytes=1 << 20
            )
        if (None if columns is None else list(columns)) != rows:
            return [
                f"record_columns and records() differ: {columns} and {rows and len(rows)} records"
            ]
    return []


def core_entry_points(run: Run) -> None:
    """Run log profile, scan_batches, resynchronise, RecordBatch, its records and record_columns."""
    mutator = run.mutator()
    while run.going_on():
        run.mark(mutator)
        for _ in range(_EVERY):
            data = mutator.case()
            _guard(run, "core_entry_points", data, lambda d=data: _walk_alone(d))  # type: ignore[misc]
            run.executions += 1


# ---- providers, codecs ---------------------------------------------------------------------------


def _answers(setup: Setup, data: bytes) -> tuple[Any, ...]:
    cfg = setup.cfg
    result = setup.kafka.validate_messages_and_assign_offsets(
        buffer_of(data), now_ms=cfg["now"], to_magic=cfg["to_magic"]
    )
    strict = setup.strict.check(buffer_of(data), now_ms=cfg["now"])
    return (
        result.error_code,
        result.rule,
        result.record_errors,
        result.output,
        strict.error_code,
        strict.rule,
        strict.reports,
    )


def _compressed_seeds(extra: tuple[Path, ...]) -> list[bytes]:
    return [
        s
        for s in seeds(extra)
        if len(s) > 22 and ((s[16] == 2 and s[22] & 7 >= 3) or (s[16] < 2 and s[17] & 7 == 3))
    ]


def providers(run: Run) -> None:
    """Compare the answers of the two providers."""
    mutator = run.mutator(_compressed_seeds(run.extra))
    configured = setups(run.seed, 30)
    before = compression.provider()
    while run.going_on():
        run.mark(mutator)
        cases = [(configured[i % len(configured)], mutator.case()) for i in range(_EVERY)]
        answers = []
        for name in compression.PROVIDERS:
            compression.use(name)
            answers.append([_answers(setup, data) for setup, data in cases])
        for (setup, data), native, packages in zip(cases, *answers, strict=True):
            if native != packages:
                run.found(
                    "providers", data, [f"native {native}", f"packages {packages}"], setup.cfg
                )
        run.executions += 2 * _EVERY
    compression.use(before)


def _inflate_case(data: bytes) -> list[str]:
    status, content, used = inflate(data, 1 << 22)
    unpacker = zlib.decompressobj(-15)
    try:
        expected = unpacker.decompress(data, 1 << 22)
        theirs = "done" if unpacker.eof else "short"
    except zlib.error:
        expected, theirs = b"", "bad"
    if status != theirs:
        return [f"inflate: {status}, zlib {theirs}"]
    if status == "done" and (content != expected or used != len(data) - len(unpacker.unused_data)):
        return [
            f"inflate: {len(content)} bytes of {used}, zlib {len(expected)} of {len(data) - len(unpacker.unused_data)}"
        ]
    return []


def _snappy_case(data: bytes) -> list[str]:
    try:
        ours: bytes | None = decode(data, 1 << 22)
    except ValueError:
        ours = None
    try:
        theirs: bytes | None = bytes(snappy.decompress(data))
    except Exception:
        theirs = None
    if theirs is None and ours is not None:
        # the package wants four bytes after a literal's tag even where it has fewer; Kafka's
        # library does not
        try:
            theirs = decode_block(data)
        except JavaError:
            theirs = None
    if ours == theirs:
        return []
    return [
        f"snappy: {None if ours is None else len(ours)}, package {None if theirs is None else len(theirs)}"
    ]


def _streams(run: Run, name: str, corpus: list[bytes], check: Callable[[bytes], list[str]]) -> None:
    mutator = Mutator(corpus, run.seed)
    while run.going_on():
        run.mark(mutator)
        for _ in range(_EVERY):
            data = mutator.stream()
            _guard(run, name, data, lambda d=data: check(d))  # type: ignore[misc]
            run.executions += 1


def inflating(run: Run) -> None:
    """Compare the package's inflate with zlib: status, content, bytes used."""
    _streams(run, "inflate", deflate_seeds(), _inflate_case)


def unsnapping(run: Run) -> None:
    """Compare the package's snappy decoder with the snappy package."""
    _streams(run, "snappy", snappy_seeds(), _snappy_case)


# ---- files ---------------------------------------------------------------------------------------


def _file_case(folder: Path, data: bytes) -> list[str]:
    path = folder / "00000000000000000000.log"
    path.write_bytes(data)
    with SegmentFile(path) as segment:
        at = 0
        for part in segment.stretches():
            if part.position != at:
                return [f"a stretch at {part.position}, expected {at}"]
            at += part.size if hasattr(part, "size") else len(part.data)
        if at != len(data):
            return [f"stretches end at {at} of {len(data)}"]
    from batchval.cli.dump import rows

    for row in rows(path, True):
        json.dumps(row)
    for profile in ("log", "produce"):
        for finding in check_paths(
            [path], Options(profile=profile, now_ms=1_700_000_000_000), Summary()
        ):
            if (
                finding.rule.error_code is not None
                and int(finding.rule.error_code) == -1
                and finding.rule.number > 40
            ):
                return [f"finding without an API error: {finding}"]
    return []


def files(run: Run) -> None:
    """Run segment reader, check and dump over files of several hostile batches."""
    mutator = run.mutator()
    with tempfile.TemporaryDirectory() as folder:
        while run.going_on():
            run.mark(mutator)
            data = b"".join(mutator.case() for _ in range(1 + run.executions % 5))
            _guard(run, "files", data, lambda d=data: _file_case(Path(folder), d))  # type: ignore[misc]
            run.executions += 1


# ---- the wire ------------------------------------------------------------------------------------


def wire(run: Run) -> None:
    """Decode broken frames of every message of the protocol."""
    frames = Frames(run.seed)
    while run.going_on():
        run.mark(frames)
        for number, data in frames.cases():
            _guard(run, "wire", data, lambda n=number, d=data: judge(n, d), {"number": number})  # type: ignore[misc]
            run.executions += 1


# ---- buffers that change, inputs that follow from a number ---------------------------------------


def _mutated(target: str) -> Callable[[Run], None]:
    return lambda run: mutated(target, run)


class _Numbers:
    """Numbers for cases; ``state`` is the next one."""

    def __init__(self, seed: int) -> None:
        self.state = seed << 24 & 0xFFFFFFFFFFFFFFFF


def _seeded(target: str) -> Callable[[Run], None]:
    """Return the loop of a target whose cases follow from a number each."""

    def loop(run: Run) -> None:
        numbers = _Numbers(run.seed)
        while run.going_on():
            run.mark(numbers)
            for _ in range(_EVERY):
                seed = numbers.state
                _guard(
                    run,
                    target,
                    b"",
                    lambda n=seed: SEEDED[target](n),  # type: ignore[misc]
                    {"seed": seed},
                )
                run.executions += 1
                numbers.state += 1

    return loop


SEEDED: dict[str, Callable[[int], list[str]]] = {
    "freed_or_resized": lifetime_case,
    "connections": connected_case,
    "durations": durations_case,
    "fast_path": fast_path_case,
    "verdicts": verdicts_case,
    "old_produce": old_produce_case,
    "fetch_answers": fetch_case,
    "answers_to_producers": functools.partial(client_case, "producer"),
    "answers_to_consumers": functools.partial(client_case, "consumer"),
    "answers_to_gates": functools.partial(client_case, "gate"),
    "answers_of_others": plain_case,
    "received": received_case,
    "down_conversion": down_case,
    "old_versions": old_versions_case,
    "streams": stream_case,
    "builder": builder_case,
    "histogram": histogram_case,
}
#: Targets whose memory is poisoned: what they find shows in outputs as bytes that no input has.
POISONED = (*KINDS, "freed_or_resized")
TARGETS: dict[str, Callable[[Run], None]] = {
    "differential": differential,
    "claims": claimed,
    "core_ranges": core_ranges,
    "core_entry_points": core_entry_points,
    "providers": providers,
    "inflate": inflating,
    "snappy": unsnapping,
    "files": files,
    "wire": wire,
    **{name: _mutated(name) for name in KINDS},
    **{name: _seeded(name) for name in SEEDED},
}


def replay(finding: Finding) -> list[str]:
    """Run a finding again and return what it is now."""
    data, cfg = bytes.fromhex(finding["batch_hex"]), finding.get("cfg", {})
    target = finding["target"]
    if target in KINDS:
        return replay_mutated(target, cfg)
    if target in SEEDED:
        return SEEDED[target](cfg["seed"])
    if target == "differential":
        return _differential_case(Setup.of(cfg), data, 0)
    if target == "claims":
        return claims_case(Setup.of(cfg), data, cfg["claims_seed"])
    if target == "core_entry_points":
        return _walk_alone(data)
    if target == "inflate":
        return _inflate_case(data)
    if target == "snappy":
        return _snappy_case(data)
    if target == "wire":
        return judge(cfg["number"], data)
    if target == "files":
        with tempfile.TemporaryDirectory() as folder:
            return _file_case(Path(folder), data)
    if target == "providers":
        setup, before, answers = Setup.of(cfg), compression.provider(), []
        for name in compression.PROVIDERS:
            compression.use(name)
            answers.append(_answers(setup, data))
        compression.use(before)
        return [] if answers[0] == answers[1] else [str(a) for a in answers]
    wrong = _wrong_ranges(
        buffer_of(data), [(0, len(data))], {"policy": 0, "origin": "CLIENT", "to_magic": 2} | cfg
    )
    return ["-1 in strict, or strict accepts and kafka refuses"] if wrong.any() else []


def last_cases(
    target: str, seed: int, extra: tuple[Path, ...], place: tuple[int, int]
) -> list[Finding]:
    """Make again, from the saved place, the cases that a target ran when its process ended."""
    state, executions = place
    if target in KINDS:
        return [describe(target, state)]
    if target in SEEDED:
        return [
            {"target": target, "cfg": {"seed": state + i}, "batch_hex": ""} for i in range(_EVERY)
        ]
    if target == "wire":
        cases = Frames(state).cases()
        return [
            {"target": target, "cfg": {"number": number}, "batch_hex": data.hex()}
            for number, data in cases
        ]
    run = Run(0, state, extra)
    if target in ("inflate", "snappy"):
        mutator = run.mutator(deflate_seeds() if target == "inflate" else snappy_seeds())
        return [
            {"target": target, "cfg": {}, "batch_hex": mutator.stream().hex()}
            for _ in range(_EVERY)
        ]
    mutator = run.mutator(_compressed_seeds(extra) if target == "providers" else None)
    if target == "files":
        data = b"".join(mutator.case() for _ in range(1 + executions % 5))
        return [{"target": target, "cfg": {}, "batch_hex": data.hex()}]
    configured = setups(seed, 30 if target == "providers" else 200)
    found = []
    for i in range(_SLOTS if target == "core_ranges" else _EVERY):
        cfg: dict[str, Any] = {}
        if target == "core_ranges":
            cfg = _range_cfg(executions // _SLOTS)
        elif target == "differential":
            cfg = configured[(executions + i) % len(configured)].cfg
        elif target == "claims":
            cfg = configured[(executions + i) % len(configured)].cfg | {
                "claims_seed": seed + executions + i
            }
        elif target == "providers":
            cfg = configured[i % len(configured)].cfg
        found.append({"target": target, "cfg": cfg, "batch_hex": mutator.case().hex()})
    return found


if os.environ.get("BATCHVAL_BUILD") in ("asan", "ubsan"):
    _EVERY = 8
