"""``python tests/evidence/hostile/strict_kafka.py --mutated 500000 --generated 500000 --odd``:
compare strict mode with Kafka itself.

Judges generated, mutated and odd batches in strict mode, under both codec providers, and asks
Kafka's own classes (the oracle's ``accepts`` command) about the same bytes. A finding is a batch
that strict accepts and Kafka refuses, or that strict answers with -1. Findings become JSON lines in
``--out``; exit code 1 if there are any, 3 without a JDK 17.

Differences of mode ``kafka`` are counted too. Batches whose record claims more than Java's heap are
not compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from batchval import compression
from batchval.core.batches.validator import LogValidator
from tests.evidence.conformance import oracle
from tests.evidence.conformance.accepts import Answered, Kafka
from tests.evidence.hostile.differential import DEFAULTS, Setup, setups
from tests.evidence.hostile.mutator import Mutator
from tests.evidence.hostile.odd_streams import odd_streams
from tests.evidence.hostile.seeds import NOW, seeds

GROUP = 64  # cases of one configuration, so that check_ranges has many ranges
AHEAD = 32  # groups that the oracle may be ahead
# codecs whose recompressed size is not Kafka's (docs/adr/0001)
CODECS_OF_THEIR_OWN = ("snappy", "lz4", "zstd")


class Finding(NamedTuple):
    """One broken promise."""

    what: str
    kafka: Answered
    setup: Setup
    batch: bytes

    def line(self) -> str:
        """Return it as a conformance case without an answer."""
        return json.dumps({"family": "strict_kafka", "what": self.what, "kafka": self.kafka._asdict(),
                           "cfg": self.setup.cfg, "batch_hex": self.batch.hex()})  # fmt: skip


class Judge:
    """Compares groups of batches, and counts."""

    def __init__(self, settings: list[Setup]) -> None:
        self.settings = settings
        self.strict = [LogValidator(setup.policy) for setup in settings]
        self.counts: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.kafka_mode: list[Finding] = []

    def group(self, number: int, batches: list[bytes], answers: list[Answered]) -> None:
        """Judge batches of one configuration."""
        for provider in compression.PROVIDERS:
            compression.use(provider)
            rows = self._rows(number, batches)
            for batch, answer, row in zip(batches, answers, rows, strict=True):
                if answer.out_of_memory():
                    self.counts["not compared, Java's heap ended"] += provider == "native"
                    continue
                self._case(number, batch, answer, row, provider)
        compression.use("native")

    def _rows(self, number: int, batches: list[bytes]) -> list[bool]:
        """Return what check_ranges accepts."""
        cfg = self.settings[number].cfg
        ranges, at = [], 0
        for batch in batches:
            ranges.append((at, len(batch)))
            at += len(batch)
        columns = self.strict[number].check_ranges(
            b"".join(batches), ranges, now_ms=cfg["now"], origin=cfg["origin"],
            produce_version=cfg["produce_version"], first_offset=cfg["first_offset"],
            leader_epoch=cfg["leader_epoch"], to_magic=cfg["to_magic"],
        )  # fmt: skip
        return [not code for code in columns["error_code"].tolist()]

    def _case(self, number: int, batch: bytes, answer: Answered, row: bool, provider: str) -> None:
        setup, strict = self.settings[number], self.strict[number]
        cfg = setup.cfg
        arguments = {
            name: cfg[name] for name in ("origin", "leader_epoch", "to_magic", "first_offset")
        }
        arguments["now_ms"] = cfg["now"]
        whole = {**arguments, "produce_version": cfg["produce_version"]}
        refused = answer.appended(cfg["origin"], batch)
        unsized = 0 if refused == answer.resize else refused

        checked = strict.check(batch, **whole)
        validated = strict.validate(batch, **whole)
        written = strict.validate(bytearray(batch), in_place=True, **whole)
        answered = [
            ("check", checked, unsized),
            ("validate", validated, refused),
            ("in place", written, refused),
        ]
        if answer.source:
            staged = strict.validate_messages_and_assign_offsets(
                batch[: checked.valid_bytes or None] if checked.ok else batch,
                source=answer.source,
                **arguments,
            )
            answered.append(("LogValidator", staged, answer.validate))
        for name, result, code in answered:
            if int(result.error_code) == -1:
                self._found(f"{name} answers -1 ({result.rule}, {provider})", answer, setup, batch)
            if result.ok and code:
                if (
                    code == answer.resize
                    and not result.in_place
                    and self._recompressed(setup, answer)
                ):
                    self.counts["rule 40 after another library's compression"] += 1
                else:
                    self._found(
                        f"{name} accepts what Kafka refuses with {code} ({provider})",
                        answer,
                        setup,
                        batch,
                    )
        if row != checked.ok and cfg["first_offset"] <= 1 << 62:  # check_ranges has no first_offset
            self._found(f"check_ranges {row}, check {checked} ({provider})", answer, setup, batch)
        if provider == "native":
            self._count(setup, batch, answer, refused, bool(validated.ok), arguments)

    def _found(self, what: str, answer: Answered, setup: Setup, batch: bytes) -> None:
        self.findings.append(Finding(what, answer, setup, batch))

    @staticmethod
    def _recompressed(setup: Setup, answer: Answered) -> bool:
        target = setup.cfg["target"]
        return (answer.source if target == "producer" else target) in CODECS_OF_THEIR_OWN

    def _count(
        self,
        setup: Setup,
        batch: bytes,
        answer: Answered,
        refused: int,
        accepted: bool,
        arguments: dict[str, Any],
    ) -> None:
        self.counts["compared"] += 1
        self.counts["accepted by Kafka"] += not refused
        self.counts["accepted by strict"] += accepted
        self.counts["refused by strict, accepted by Kafka"] += not refused and not accepted
        analyzed = setup.kafka.analyze(
            batch, origin=setup.cfg["origin"], leader_epoch=setup.cfg["leader_epoch"]
        )
        ours = 0 if analyzed.ok else int(analyzed.error_code)
        if ours != answer.analyze:
            self.kafka_mode.append(
                Finding(f"analyze: {ours}, Kafka {answer.analyze}", answer, setup, batch)
            )
        elif answer.source:
            valid = (
                batch[: analyzed.valid_bytes] if 0 < analyzed.valid_bytes < len(batch) else batch
            )
            result = setup.kafka.validate_messages_and_assign_offsets(
                valid, source=answer.source, **arguments
            )
            ours = 0 if result.ok else int(result.error_code)
            if ours != answer.validate:
                what = f"validate: {ours} {result.rule} ({result.reason}), Kafka {answer.validate}"
                self.kafka_mode.append(Finding(what, answer, setup, batch))


def _plain_setups() -> list[Setup]:
    """Return setups for odd streams: in place, rebuilt with each codec, each magic, a
    coordinator.
    """
    found = []
    for target in ("producer", "uncompressed", "gzip", "zstd"):
        for magic in (2, 1, 0):
            found.append(Setup.of({"now": NOW, "target": target, "to_magic": magic}))
    return [*found, Setup.of({"now": NOW, "origin": "COORDINATOR"})]  # which may append markers


Group = tuple[int, list[bytes]]


def mutated(seed: int, settings: list[Setup], count: int) -> Iterator[Group]:
    """Yield groups of mutated batches."""
    mutator = Mutator(seeds(), seed)
    for turn in range(-(-count // GROUP)):
        yield (
            turn % len(settings),
            [mutator.case() for _ in range(min(GROUP, count - turn * GROUP))],
        )


def odd(first: int, settings: list[Setup], limit: int) -> Iterator[Group]:
    """Yield every odd stream under every plain configuration."""
    streams = [stream.batch for stream in odd_streams(max(1, limit // len(settings)))]
    for number in range(len(settings)):
        for at in range(0, len(streams), GROUP):
            yield first + number, streams[at : at + GROUP]


def compare(settings: list[Setup], groups: Iterable[Group]) -> Judge:
    """Ask Kafka and strict about all groups."""
    judge = Judge(settings)
    groups = iter(groups)
    with Kafka([setup.cfg for setup in settings]) as kafka:
        waiting: list[Group] = []
        started = time.monotonic()
        while True:
            for number, batches in islice(groups, AHEAD - len(waiting)):
                kafka.ask([(number, batch) for batch in batches])
                waiting.append((number, batches))
            if not waiting:
                return judge
            number, batches = waiting.pop(0)
            before = judge.counts["compared"]
            judge.group(number, batches, list(kafka.answers(len(batches))))
            done = judge.counts["compared"]
            if before // 100_000 != done // 100_000:
                rate = done / (time.monotonic() - started)
                print(
                    f"{done:,} compared, {rate:,.0f}/s, {len(judge.findings)} findings", flush=True
                )


def generated(seed: int, count: int) -> tuple[list[Setup], list[Group]]:
    """Return the oracle's own cases, and their configurations."""
    settings: dict[str, int] = {}
    found: dict[int, list[bytes]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "questions.jsonl"
        oracle.run("generate", "--seed", str(seed), "--cases", str(count), str(path))
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                case = json.loads(line)
                cfg = {**DEFAULTS, **case["cfg"], "source": "auto"}
                number = settings.setdefault(json.dumps(cfg, sort_keys=True), len(settings))
                found.setdefault(number, []).append(bytes.fromhex(case["batch_hex"]))
    return [Setup.of(json.loads(text)) for text in settings], [
        (number, batches[at : at + GROUP])
        for number, batches in found.items()
        for at in range(0, len(batches), GROUP)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutated", type=int, default=0, metavar="N")
    parser.add_argument("--generated", type=int, default=0, metavar="N")
    parser.add_argument(
        "--odd", type=int, default=0, metavar="N", help="about N odd streams; 10000000: all"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/hostile"), help="folder for findings"
    )
    options = parser.parse_args()
    try:
        totals = _run(options)
    except oracle.OracleUnavailable as error:
        print(f"strict_kafka: {error}", file=sys.stderr)
        return 3
    return totals


def _run(options: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    kafka_mode: list[Finding] = []

    def add(judge: Judge) -> None:
        counts.update(judge.counts)
        findings.extend(judge.findings)
        kafka_mode.extend(judge.kafka_mode)

    if options.mutated:
        settings = setups(options.seed)
        add(compare(settings, mutated(options.seed, settings, options.mutated)))
    if options.odd:
        settings = _plain_setups()
        add(compare(settings, odd(0, settings, options.odd)))
    # a pass of the generator at a time: each has its own configurations
    left, seed = options.generated, options.seed
    while left > 0:
        settings, groups = generated(seed, min(left, 36_000))
        add(compare(settings, groups))
        left -= sum(len(batches) for _, batches in groups)
        seed += 1
    options.out.mkdir(parents=True, exist_ok=True)
    for name, found in (("strict_kafka", findings), ("kafka_mode", kafka_mode)):
        if found:
            path = options.out / f"{name}-{options.seed}.jsonl"
            path.write_text("".join(finding.line() + "\n" for finding in found), encoding="utf-8")
            print(f"{len(found)} in {path}")
            for what, count in Counter(finding.what for finding in found).most_common(12):
                print(f"  {count:6} {what}")
    for name, count in sorted(counts.items()):
        print(f"{count:12,} {name}")
    print(
        f"strict_kafka: {len(findings)} findings in {counts['compared']:,} cases (seed {options.seed})"
    )
    return int(bool(findings) or not counts["compared"])


if __name__ == "__main__":
    sys.exit(main())
