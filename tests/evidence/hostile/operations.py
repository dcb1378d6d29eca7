"""Every public function that takes a buffer, called on memory that somebody else is writing to.

An operation gets a Scene and returns what is wrong with the answer. It may raise what the function
documents: BatchvalError with its subclasses, or what DOCUMENTED adds for it.

What must hold, whatever the other side writes:

* no crash, no other exception;
* no poison byte (marked.py) in a key, value or header of a marked case: it would be memory that is
  not the case's;
* an accepted batch that comes as new bytes is itself a valid batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from batchval.compression.compressors import compress
from batchval.core import claims
from batchval.core.batches.batch import RecordBatch, batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.record_columns import record_columns
from batchval.core.batches.result import ValidationResult
from batchval.core.batches.validator import LogValidator
from batchval.core.convert import builder as producer_builder
from batchval.core.convert.down_conversion import NotConverted, down_convert
from batchval.core.fetched import walk_fetched
from batchval.core.format.crc32c import crc32, crc32c, crc32c_by, usable_kernels
from batchval.errors import BatchvalError
from batchval.fetch.partition_chunks import FetchPieces, FetchSplitter
from batchval.perf.histogram import Histogram, stamp_many
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.producer.murmur2 import murmur2, partition_of
from batchval.protocol import messages
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.walkers.addresses import addresses, rewrite_addresses
from batchval.protocol.walkers.fetch_tail import FetchTail, rewrite_tail
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView, merge, refuse
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.session.fast_path import FastPath, Routes
from batchval.proxy.settings.options import Counters
from batchval.segment.reader import Damage, InMemory, SegmentReader
from batchval.segment.search_window import follow, resynchronise
from tests.evidence.hostile.differential import PLAIN_RULES, RULES
from tests.evidence.hostile.marked import has_poison
from tests.evidence.hostile.seeds import NOW
from tests.evidence.hostile.verdicts import FACTS
from tests.evidence.hostile.writers import Scene
from tests.support.proxy import proxy_options

__all__ = ["DOCUMENTED", "OPERATIONS", "Operation", "Values", "output_of"]

LIMIT = 1 << 20
_CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")

_ASKED = [
    name for name in dir(ValidationResult) if not name.startswith("_") and name != "raise_for_error"
]

_ASKED_ALWAYS = ("ok", "rule", "error_code", "batch_claims", "max_timestamp")

Judge = Callable[[Scene], list[str]]


@dataclass(frozen=True)
class Operation:
    """One function with the kinds of cases that it is called on.

    ``second`` is a case that is changed as well. ``own_memory``: only memory of this process is
    ever read.
    """

    name: str
    run: Judge
    kinds: tuple[str, ...]
    second: str | None = None
    own_memory: bool = False


OPERATIONS: dict[str, Operation] = {}
DOCUMENTED: dict[str, tuple[type[BaseException], ...]] = {
    # latencies below 0, sums above 2**63 - 1
    "histogram": (ValueError, OverflowError),
}
_BATCHES = ("batch", "claimed", "legacy", "set")


def _operation(
    *kinds: str, second: str | None = None, own_memory: bool = False
) -> Callable[[Judge], Judge]:
    def add(function: Judge) -> Judge:
        name = function.__name__.removeprefix("_")
        OPERATIONS[name] = Operation(name, function, kinds, second, own_memory)
        return function

    return add


# ---- the checks ----------------------------------------------------------------------------------


@cache
def _validators() -> tuple[LogValidator, ...]:
    policies = (
        TopicPolicy(accept_claims_header=True),
        TopicPolicy(cleanup_policy="compact", message_timestamp_before_max_ms=1000),
        TopicPolicy(compression_type="lz4", message_timestamp_type="LogAppendTime"),
        TopicPolicy(record_rules=RULES),
        TopicPolicy(record_rules=PLAIN_RULES),
    )
    return tuple(
        LogValidator(policy, mode=mode, max_decompressed_bytes=LIMIT)  # type: ignore[arg-type]
        for mode in ("strict", "kafka")
        for policy in policies
    )


def _rebuilding(clock_ns: Callable[[], int] | None) -> tuple[LogValidator, ...]:
    """Return one for each codec to recompress to, then two that leave the codec as it is."""
    policies = [TopicPolicy(compression_type=codec) for codec in _CODECS]
    policies += [
        TopicPolicy(accept_claims_header=True),
        TopicPolicy(message_timestamp_type="LogAppendTime"),
    ]
    return tuple(
        LogValidator(
            policy,
            mode=mode,  # type: ignore[arg-type]
            max_decompressed_bytes=LIMIT,
            clock_ns=clock_ns,
        )
        for mode in ("strict", "kafka")
        for policy in policies
    )


@cache
def _unhurt() -> tuple[LogValidator, ...]:
    """Return those whose clock changes nothing."""
    return _rebuilding(None)


#: Validators that change the case of a scene whenever they ask the clock, before and after a batch
#: is rebuilt. A scene has blocks, and is freed with them: nothing here may hold it.
_HURTING: WeakKeyDictionary[Scene, tuple[LogValidator, ...]] = WeakKeyDictionary()


def _hurting(scene: Scene) -> tuple[LogValidator, ...]:
    """Return those whose clock changes the case of this scene."""
    if scene not in _HURTING:
        weak = ref(scene)

        def change() -> int:
            changed = weak()
            assert changed is not None
            changed.hurt()
            return 0

        _HURTING[scene] = _rebuilding(change)
    return _HURTING[scene]


@cache
def _at_rest() -> LogValidator:
    policy = TopicPolicy(accept_claims_header=True)
    return LogValidator(policy, profile="log", max_decompressed_bytes=LIMIT)


def _read(result: Any, turn: int = 0) -> None:
    """Ask a result for everything in every eighth turn: it may hold thousands of errors."""
    for name in _ASKED if turn % 8 == 0 else _ASKED_ALWAYS:
        getattr(result, name)
    if turn % 8 == 0:
        str(result)


@_operation(*_BATCHES)
def _check(scene: Scene) -> list[str]:
    validator = _validators()[scene.turn % 6]
    tag = scene.case.tag
    word = ("ignore", "verify", "trust")[scene.turn % 3] if validator.mode == "strict" else "ignore"
    claims: Any = (tag, word) if tag else None
    _read(validator.check(scene.buffer, now_ms=NOW, claims=claims), scene.turn)
    return []


@_operation(*_BATCHES)
def _check_at_rest(scene: Scene) -> list[str]:
    _read(_at_rest().check(scene.buffer), scene.turn)
    return []


@_operation(*_BATCHES)
def _check_batches(scene: Scene) -> list[str]:
    trust = (None, (0.5, bytes(16)), (1.0, bytes(16)))[scene.turn % 7 % 3]
    columns = _at_rest().check_batches(scene.buffer, deep=scene.turn % 3 > 0, trust_claims=trust)
    for i in range(len(columns)):
        columns.reason_of(i)
        if scene.turn % 5 == 0:
            _read(columns.result(i))
    if scene.turn % 16 == 0:
        list(columns.rows())
    return []


@_operation(*_BATCHES)
def _check_request(scene: Scene) -> list[str]:
    _read(_validators()[scene.turn % 6].check_request(scene.buffer), scene.turn)
    return []


@_operation(*_BATCHES)
def _analyze(scene: Scene) -> list[str]:
    origin: Any = ("CLIENT", "REPLICATION", "COORDINATOR")[scene.turn % 3]
    _read(_validators()[scene.turn % 6].analyze(scene.buffer, origin=origin), scene.turn)
    return []


def _look_at(columns: Any, turn: int) -> None:
    for i in range(min(len(columns), 4)):
        columns.reason_of(i)
        if turn % 4 == 0:
            _read(columns.result(i))


@_operation("batch", "set")
def _check_ranges(scene: Scene) -> list[str]:
    """Pass tuples, policies and claims of each range, or ask for every batch of the buffer."""
    validator, size = _validators()[scene.turn % 3], len(scene.case.data)
    ranges = None if scene.turn % 4 == 0 else [(0, size), (0, size), (1, size - 1)]
    policies = (
        [TopicPolicy(), TopicPolicy(compression_type="gzip"), TopicPolicy()]
        if scene.turn % 4 == 1
        else None
    )
    tags: Any = [(scene.case.tag, "trust"), None, (None, "verify")] if scene.turn % 4 == 2 else None
    _look_at(
        validator.check_ranges(scene.buffer, ranges, policies, now_ms=NOW, claims=tags), scene.turn
    )
    return []


@_operation("batch", second="pairs")
def _check_ranges_pairs(scene: Scene) -> list[str]:
    """Pass pairs in memory that is written to, as the batch is."""
    pairs = np.frombuffer(scene.second, "<i8")
    if scene.turn % 2:
        pairs = pairs.reshape(-1, 2)
    _look_at(
        _validators()[scene.turn % 3].check_ranges(scene.buffer, pairs, now_ms=NOW), scene.turn
    )
    return []


# ---- outputs -------------------------------------------------------------------------------------


def _foreign(scene: Scene, records: Iterable[Any]) -> list[str]:
    """Return whether any record holds memory that is not the case's."""
    if not scene.case.marked:
        for record in records:
            bytes(record.key or b""), bytes(record.value or b"")
        return []
    for record in records:
        if has_poison(record.key, record.value):
            key, content = bytes(record.key or b"")[:60], bytes(record.value or b"")[:200]
            return [f"foreign bytes in a record: {key!r} {content!r}"]
        for name, value in record.headers:
            if has_poison(name.encode(), value):
                return [f"foreign bytes in a header: {name[:60]!r} {bytes(value or b'')[:200]!r}"]
    return []


@cache
def _referee() -> LogValidator:
    return LogValidator(TopicPolicy(max_message_bytes=2**31 - 1), profile="log", mode="kafka")


def output_of(scene: Scene, result: Any, crc_counts: bool) -> list[str]:
    """Return what is wrong with the bytes of an accepted batch."""
    if not result.ok:
        return []
    output = bytes(result.output or b"")
    found = []
    for row in _referee().check_batches(output).rows():
        if row["rule"] is not None and (crc_counts or row["is_valid"]):
            found.append(f"accepted, but its output is refused: {row['rule']}")
    try:
        for one in batches(output):
            found += _foreign(scene, one.records())
    except BatchvalError as error:
        # LogValidator alone asks no checksum: what it leaves in place may be damaged
        if crc_counts or not result.in_place:
            found.append(f"accepted, but its output cannot be read: {error}")
    return found[:1]


@_operation("batch", "claimed", "legacy")
def _validate(scene: Scene) -> list[str]:
    """Validate; in every second call the batch also changes between verdict and rebuild."""
    certain = scene.turn % 2 == 0
    kinds = _hurting(scene) if certain else _unhurt()
    result = kinds[scene.turn // 2 % len(kinds)].validate(scene.buffer, now_ms=NOW, first_offset=5)
    if certain:
        scene.restore()
    _read(result, scene.turn)
    return output_of(scene, result, True)


@_operation("batch", "legacy")
def _validate_in_place(scene: Scene) -> list[str]:
    """Validate in place. The output is the buffer, which changes, or new bytes of a rebuilt
    batch.
    """
    kinds = _unhurt()
    validator = kinds[scene.turn % len(kinds)]
    result = validator.validate(
        scene.buffer, now_ms=NOW, first_offset=5, leader_epoch=3, in_place=True
    )
    found = []
    if result.ok and not isinstance(result.output, memoryview):
        found = output_of(scene, result, True)
    _read(result, scene.turn)
    del result
    scene.restore()
    return found


@_operation("batch", "legacy")
def _messages_stage(scene: Scene) -> list[str]:
    """Run LogValidator alone, with up- and down-conversion. Checksums do not count: it asks
    none.
    """
    kinds = _unhurt()
    validator = kinds[scene.turn % len(kinds)]
    magic = (2, 1, 0)[scene.turn % 3]
    result = validator.validate_messages_and_assign_offsets(
        scene.buffer, now_ms=NOW, to_magic=magic, first_offset=5
    )
    _read(result, scene.turn)
    return output_of(scene, result, False)


# ---- scans and records ---------------------------------------------------------------------------


@_operation(*_BATCHES)
def _scan(scene: Scene) -> list[str]:
    columns = scan_batches(scene.buffer, accept_claims_header=scene.turn % 2 == 0)
    if scene.turn % 16 == 0:
        list(columns.rows())
    resynchronise(scene.buffer, 1)
    follow(scene.buffer, 1 << 20)
    return []


_PROPERTIES = [name for name in dir(RecordBatch) if not name.startswith("_") and name != "records"]


@_operation(*_BATCHES)
def _properties(scene: Scene) -> list[str]:
    one = RecordBatch(scene.buffer)
    for name in _PROPERTIES:
        getattr(one, name)
    repr(one)
    return []


@_operation(*_BATCHES)
def _records(scene: Scene) -> list[str]:
    """Read records one after the other; every second time the batch changes in between."""
    one = RecordBatch(scene.buffer)
    records = one.records(max_decompressed_bytes=LIMIT)
    found = _foreign(scene, islice(records, scene.turn % 3))
    if scene.turn % 2:
        scene.hurt()
    try:
        found += _foreign(scene, records)
    finally:
        if scene.turn % 2:
            scene.restore()
    return found


@_operation(*_BATCHES)
def _record_columns(scene: Scene) -> list[str]:
    """Read all records as columns; every second time the batch changes before they are used."""
    columns = record_columns(scene.buffer, check_crcs=False, max_decompressed_bytes=LIMIT)
    if scene.turn % 2:
        scene.hurt()
    try:
        if scene.case.marked and any(has_poison(row.key, row.value) for row in columns):
            return ["foreign bytes in record columns"]
        columns.__arrow_c_array__()
    finally:
        if scene.turn % 2:
            scene.restore()
    return []


@_operation("batch", "claimed", "legacy", "set")
def _batches_and_records(scene: Scene) -> list[str]:
    found = []
    for one in batches(scene.buffer):
        found += _foreign(scene, islice(one.records(max_decompressed_bytes=LIMIT), 3))
    return found


@_operation("batch", "legacy", "set")
def _fetched(scene: Scene) -> list[str]:
    turn = scene.turn
    walk_fetched(
        scene.buffer,
        turn % 2,
        ("records", "headers")[turn % 3 == 0],
        turn % 5 == 0,
        max_decompressed_bytes=LIMIT,
    )
    return []


@_operation("batch", "legacy", "set")
def _down_converted(scene: Scene) -> list[str]:
    """Convert down; what was made before a batch that cannot be converted is whole too."""
    turn = scene.turn
    try:
        made = down_convert(
            scene.buffer,
            turn % 2,
            aborted=((1000, 0), (-1, 0))[: turn % 3],
            max_bytes=(None, 1, 5000)[turn % 5 % 3],
            max_decompressed_bytes=LIMIT,
        )
    except NotConverted as error:
        made = error.converted
    found, size = [], 0
    for one in batches(made.output):
        size += one.size_in_bytes
        if scene.case.kind != "batch":
            continue  # it may have passed as it was
        if not one.is_valid:
            found.append("a message with a wrong checksum")
        found += _foreign(scene, one.records())
    return (
        found[:1]
        if size == len(made.output)
        else [f"{size} of {len(made.output)} bytes are messages"]
    )


@_operation("set", "batch")
def _segment(scene: Scene) -> list[str]:
    check = _at_rest().check_batches if scene.turn % 2 else None
    reader = SegmentReader(InMemory(memoryview(scene.buffer)), accept_claims_header=True)
    for part in islice(reader.stretches(block=4096, scan=check), 50):
        if not isinstance(part, Damage):
            len(part.data)
    return []


@_operation("batch", "claimed")
def _claims(scene: Scene) -> list[str]:
    made = claims.compute(scene.buffer, max_decompressed_bytes=LIMIT)
    claims.read(scene.buffer)
    if made is not None:
        claims.to_tag(made, 7)
    carried = scene.case.kind == "claimed"
    out = claims.strip(scene.buffer) if carried else claims.attach(scene.buffer, made or (0, 1, 2))
    if len(out) != len(scene.case.data) + (-13 if carried else 13):
        return [f"{len(out)} bytes made of {len(scene.case.data)}"]
    claims.from_tag(memoryview(scene.buffer)[:18], 7)
    return []


@_operation("batch", "stamps")
def _checksums(scene: Scene) -> list[str]:
    data = scene.buffer
    crc32c(data), crc32(data), murmur2(data), partition_of(data, 7)
    for name in usable_kernels():
        crc32c_by(name, data)
    return []


@_operation("batch")
def _compressing(scene: Scene) -> list[str]:
    codec = 1 + scene.turn % 4
    compress(codec, memoryview(scene.buffer), 2)
    return []


# ---- the producer --------------------------------------------------------------------------------

Values = next(
    kind
    for kind in vars(producer_builder).values()
    if isinstance(kind, type) and {"largest", "fitting"} <= set(vars(kind))
)


def _built(scene: Scene, made: Any) -> list[str]:
    made.seal(5, 1, 0)
    data = bytes(made.view())
    made.tag(), made.crc
    halves = made.split()
    for half in halves:
        half.seal()
    result = _referee().check(data)
    if not result.ok:
        return [f"the builder's batch is refused: {result}"]
    return _foreign(scene, RecordBatch(data).records())


@_operation("batch")
def _builder(scene: Scene) -> list[str]:
    turn = scene.turn
    part = memoryview(scene.buffer)[61 : None if turn % 32 == 0 else 600]
    made = producer_builder.BatchBuilder(1 << 14, turn // 4 % 5 if turn % 4 == 0 else 0)
    for i in range(3):
        made.append(
            part[i : i + 9] if i else None,
            part,
            [("h", part[:5]), ("n", None)] if turn % 2 else (),
            NOW + i,
        )
    return _built(scene, made)


@_operation("batch", second="stamps")
def _many_values(scene: Scene) -> list[str]:
    """Use what send_many uses: one value or a list, and stamps in memory that is written to."""
    part = memoryview(scene.buffer)[61:600]
    stamps = np.frombuffer(scene.second, "<i8")
    values: Any = part if scene.turn % 2 else [part[i % len(part) :] for i in range(len(stamps))]
    taken = Values(values, stamps)
    made = producer_builder.BatchBuilder(1 << 14, 0)
    try:
        taken.largest(), taken.fitting(1000)
        made.append_many(taken, 0, taken.count, 1, NOW)
        list(made.stamps)
    finally:
        taken.close()
    return _built(scene, made)


@_operation("stamps")
def _histogram(scene: Scene) -> list[str]:
    stamps = np.frombuffer(scene.buffer, "<i8")
    counted = Histogram()
    try:
        if scene.turn % 2:
            counted.record_since(stamps, 1 << 50)
        else:
            counted.record_many(stamps)
    finally:
        if scene.turn % 8 == 0:
            stamp_many(stamps)
            scene.restore()
        counts = counted.counts()
        total = sum(times for _, times in counts)
        counted.percentile(99.0), counted.stddev, counted.to_json()
    return (
        []
        if total == counted.count
        else [f"{total} latencies in the counters, {counted.count} counted"]
    )


# ---- frames --------------------------------------------------------------------------------------


@_operation("produce", "answer", "metadata", "fetch")
def _readers(scene: Scene) -> list[str]:
    view = memoryview(scene.buffer)
    match scene.case.kind:
        case "produce":
            messages.ProduceRequest.parse(view[4:])
        case "answer":
            messages.ProduceResponse.decode(view[4:], scene.case.version)
        case "metadata":
            messages.MetadataResponse.decode(view, scene.case.version)
        case _:
            messages.FetchResponse.decode(view, scene.case.version)
    return []


@_operation("produce")
def _splitting(scene: Scene) -> list[str]:
    """Walk whole frames, which are slices of what was fed: memory that is written to."""
    splitter = FrameSplitter(1 << 20)
    view = memoryview(scene.buffer)
    cut = scene.turn % 20
    frames = splitter.feed(view[:cut]) + splitter.feed(view[cut:])
    if scene.turn % 2:
        frames.append(view[4:])
    for frame in frames:
        _walk_request(ProduceRequestView(frame), scene)
    return []


def _walk_request(request: ProduceRequestView, scene: Scene) -> None:
    count = len(request)
    for name in (
        "client_id",
        "transactional_id",
        "acks",
        "timeout_ms",
        "expects_response",
        "has_claims",
    ):
        getattr(request, name)
    request.ranges()
    for i in range(count):
        request.topic(i), request.partition(i), request.claims(i), request.topic_id(i)
        records = request.records(i)
        if records is not None:
            _validators()[0].check(records, now_ms=NOW)
    if not count:
        return
    keep = [i % 2 == 0 for i in range(count)]
    tags = [b"c" * 18, *[None] * (count - 1)] if request.api_version >= 9 else None
    b"".join(request.rewritten(keep=keep, claims=tags, correlation_id=1))
    b"".join(refuse(request, [(87, [(0, None)], "r")] * count))


@_operation("answer")
def _answers(scene: Scene) -> list[str]:
    version = scene.case.version
    answer = ProduceResponseView(scene.buffer[4:], version)
    for i in range(len(answer)):
        answer.topic(i), answer.partition(i), answer.error_code(i), answer.base_offset(i)
    request = ProduceRequestView(_request(version)[4:])
    b"".join(merge(request, [None] * len(request), answer))
    return []


@cache
def _request(version: int) -> bytes:
    from tests.support.proxy import produce_frame

    return produce_frame(1, ("topic", 0, b""), version=version)


@_operation("metadata")
def _rewriting_addresses(scene: Scene) -> list[str]:
    addresses(scene.buffer, 3, scene.case.version)
    found = rewrite_addresses(
        scene.buffer, 3, scene.case.version, lambda *_: ("gate", 9), correlation_id=5
    )
    b"".join(found)
    return []


@_operation("tail")
def _fetch_tail(scene: Scene) -> list[str]:
    walk, body = FetchTail(1, scene.case.version), memoryview(scene.buffer)
    cut = scene.turn * 37 % len(body)
    before = walk.feed(body[:cut])
    if before == cut:
        before += walk.feed(body[cut:])
    size = walk.tail_size
    if size < 0 or not 0 <= before <= len(body):
        return [] if size < 0 else [f"{before} bytes before a tail of {size}"]
    out = rewrite_tail(body[before:], 1, scene.case.version, lambda *_: ("gate", 9))
    return [] if len(out) == len(body) - before else [f"{len(out)} bytes for {len(body) - before}"]


@_operation("fetch")
def _fetch_pieces(scene: Scene) -> list[str]:
    seen: list[Any] = []

    def on_partition(topic: str, data: Any, ended: bool) -> None:
        seen.append(topic)
        if data.records is not None:
            walk_fetched(data.records, max_decompressed_bytes=LIMIT)

    FetchPieces(scene.case.version, on_partition).read(scene.buffer)
    return []


@_operation("fetch")
def _fetch_splitter(scene: Scene) -> list[str]:
    splitter = FetchSplitter(1 << 24)
    splitter.expect(1, FetchPieces(scene.case.version, lambda *_: None))
    body = memoryview(scene.buffer)
    data = len(body).to_bytes(4, "big")
    at, step = 0, 1 + scene.turn % 700
    for part in (data, body):
        at = 0
        while at < len(part):
            target = splitter.get_buffer()
            size = min(len(target), len(part) - at, step)
            target[:size] = part[at : at + size]
            at += size
            splitter.buffer_updated(size)
    return []


@cache
def _gates() -> tuple[ProduceValidator, ...]:
    found = []
    for word in ("ignore", "verify", "trust"):
        options = proxy_options(
            claims_in=ClaimsPolicy.parse(word),
        )
        gate = ProduceValidator(options, Counters())
        found.append(gate)
    return tuple(found)


@cache
def _routes() -> Routes:
    return Routes(
        {key: (first, last, 1 << 30) for key, (first, last) in carried_versions().items()}
    )


def _fast_path(turn: int) -> tuple[FastPath, deque[Any]]:
    gate, answers = _gates()[turn % 3], deque()  # type: ignore[var-annotated]
    path = FastPath(_routes(), gate, gate.counters, answers, {})
    path.name("CN=x")
    return path, answers


@_operation("frames", own_memory=True)
def _fast_requests(scene: Scene) -> list[str]:
    """Pass two frames, one after the other in one Block, as FrameSplitter cuts them."""
    path, _ = _fast_path(scene.turn)
    out: list[Any] = []
    half = len(scene.case.data) // 2
    taken = path.take([scene.buffer[:half], scene.buffer[half:]], 0, NOW, out)
    size = sum(len(part) for part in out)
    found = [f"{size} bytes of {taken} frames go on"] if size > taken * half else []
    del out
    scene.restore()
    return found


@_operation("frames")
def _verdicts(scene: Scene) -> list[str]:
    """Judge a request while its bytes change, and write what follows."""
    gate = _gates()[scene.turn % 3]
    half = len(scene.case.data) // 2
    try:
        request = ProduceRequestView(scene.buffer[4:half])
        verdict = gate.validate(request, "CN=x")
        while not verdict.done:
            gate.work(request, verdict, heavy=True, budget_s=1.0)
        gate.settle(request, verdict, FACTS)
        if not verdict.any_left:
            verdict.answer(request)
        elif not verdict.untouched:
            verdict.forwarded(request, 7)
    except ProtocolError:
        return []
    verdicts = verdict.verdicts
    assert verdicts is not None
    for i in range(len(verdicts)):
        if verdicts.ok(i) != (verdicts.error_code(i) == 0):
            return ["a verdict without an error, or the other way round"]
    return []


@_operation("answer", own_memory=True)
def _fast_answers(scene: Scene) -> list[str]:
    path, answers = _fast_path(scene.turn)
    version = scene.case.version
    path.sent, path.received = 1, 0
    answers.append(version << 32 | 77)
    out: list[Any] = []
    path.give([scene.buffer], 0, out)
    size = sum(len(part) for part in out)
    found = [f"{size} bytes go on"] if size > len(scene.case.data) else []
    del out
    scene.restore()
    return found
