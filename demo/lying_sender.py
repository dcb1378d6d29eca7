"""Claims about batches: what they save, and what happens to a sender of false claims."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from batchval import LogValidator, TopicPolicy
from batchval.core import claims
from batchval.core.batches.batch import batches
from batchval.core.batches.result import PATHS
from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy
from demo.damage import LOG

REPEATS = 15
RATE = 0.05
SECRET = b"a demo must end the same way twice"
FIRST_LIE = 150  # batches; the first 100 of a sender are all checked
ACCEPTS = TopicPolicy(accept_claims_header=True)


class Claimed(NamedTuple):
    """Compressed batches as a client would send them, once without and once with claims in their
    headers.
    """

    plain: list[bytes]
    carried: list[bytes]
    unpacked: int  # bytes of all records
    now_ms: int


class Way(NamedTuple):
    """One treatment of the same file."""

    what: str
    ns: float
    decompressed: int  # bytes
    paths: dict[str | None, int]


class Caught(NamedTuple):
    """What happened to the lying sender: batches are counted from 1."""

    lies_until_caught: int
    answer: str
    demoted_path: str | None  # of an honest batch right after the lie
    honest_path: str | None  # of another sender at the same time


def claimed(segments: Path) -> Claimed:
    """Return every compressed batch of the fixtures' codec partitions."""
    plain: list[bytes] = []
    unpacked = now_ms = 0
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        data = (segments / f"codec-{codec}-0" / LOG).read_bytes()
        position = 0
        for batch in batches(data):
            raw = data[position : position + batch.size_in_bytes]
            position += batch.size_in_bytes
            if batch.compression_type:
                # as its producer sent it: neither field is under the checksum
                plain.append(bytes(8) + raw[8:12] + b"\xff\xff\xff\xff" + raw[16:])
                unpacked += sum(record.size_in_bytes for record in batch.records())
                now_ms = max(now_ms, batch.max_timestamp)
    carried = [claims.attach(batch) for batch in plain]
    return Claimed(plain, carried, unpacked, now_ms)


def ways(these: Claimed) -> list[Way]:
    """Return the same batches without claims, with checked claims, and with trusted claims."""
    validator = LogValidator(ACCEPTS)
    without, carried = b"".join(these.plain), b"".join(these.carried)
    made = []
    for what, data, call in (
        ("no claims", without, None),
        ("claims, all verified", carried, (None, "verify")),
        ("claims, trusted", carried, (None, "trust")),
    ):
        took = []
        for _ in range(REPEATS):
            start = time.perf_counter_ns()
            columns = validator.check_ranges(data, now_ms=these.now_ms, claims=call)  # type: ignore[arg-type]
            took.append(time.perf_counter_ns() - start)
        rows = columns["path"].tolist()
        paths = {PATHS[path]: rows.count(path) for path in sorted(set(rows))}
        believed = paths == {"claims": len(these.carried)}
        made.append(Way(what, median(took), 0 if believed else these.unpacked, paths))
    return made


def lie_of(batch: bytes) -> bytes:
    """Return the batch with a false claim about its keys: all null, or none."""
    true = claims.compute(batch)
    assert true is not None
    return claims.attach(batch, true._replace(null_keys=1 if true.null_keys != 1 else 2))


def lying_sender(these: Claimed) -> Caught:
    """Send 150 honest batches, then only false claims, until the audit demotes the sender."""
    ledger = ClaimsLedger(ClaimsPolicy("audit", RATE), secret=SECRET)
    validator = LogValidator(ACCEPTS)

    def send(sender: str, data: bytes) -> tuple[str | None, str]:
        result = ledger.check(validator, data, sender=sender, now_ms=these.now_ms)
        rule = result.rule
        return (
            result.path,
            "accepted" if rule is None else f"{result.error_code.name} by rule {rule}",
        )

    count = len(these.carried)
    for n in range(FIRST_LIE):
        send("honest", these.carried[n % count])
        send("lying", these.carried[n % count])
    lies, answer = 0, "accepted"
    while answer == "accepted" and lies < 10_000:
        answer = send("lying", lie_of(these.plain[lies % count]))[1]
        lies += 1
    demoted, _ = send("lying", these.carried[0])
    honest = [send("honest", these.carried[0])[0] for _ in range(5)]
    return Caught(lies, answer, demoted, max(honest, key=honest.count))
