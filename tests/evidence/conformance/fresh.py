"""Fresh cases, end to end: makes new ones from a seed, asks Apache Kafka's own classes, and
compares.

    python tests/evidence/conformance/fresh.py --seed S [--cases N]
        [--kafka-version 3.9.2|all] [--families PREFIX]
        [--keep FILE]

Each case is compared under both codec providers: mode ``kafka`` must give Kafka's answers, and
``strict`` must refuse what Kafka refuses. Prints every disagreement, then the number of cases of
each family, and of each origin that a real log answered (the stage ``append``); the last line is
``conformance: N of M agree`` (a case agrees if it does under both). Exit code 0 only if all agree,
3 without JDK 17 or Maven.

Where Kafka itself ran out of memory, which takes a record or a count that claims about two
gigabytes, its answer tells of the heap and not of the batch. Such a case is printed, is not
compared, and is not among the M. A length above that of the longest array of a JVM, which brokers
without a limit of it try to allocate, fails on every heap: that case is compared.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from batchval import compression  # noqa: E402
from batchval.cli.cases import (  # noqa: E402
    STAGES,
    Case,
    NotACase,
    compare,
    kafka_refuses,
    read_cases,
    strict_results,
)
from batchval.errors import BatchvalError  # noqa: E402
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION  # noqa: E402
from tests.evidence.conformance import oracle  # noqa: E402

DEFAULT_CASES = 2000
NO_JDK = 3
ALL = "all"


class Count:
    """Counts the cases of each family: all, those that agreed, those that Kafka and strict mode
    refused.
    """

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.agree: Counter[str] = Counter()
        self.kafka_refused: Counter[str] = Counter()
        self.strict_refused: Counter[str] = Counter()
        self.unanswered: list[str] = []
        self.appended: Counter[str] = Counter()
        self.appended_agree: Counter[str] = Counter()

    def refusals(self, case: Case) -> None:
        """Count the answers of Kafka and of strict mode to a case."""
        self.kafka_refused[case["family"]] += bool(kafka_refuses(case))
        self.strict_refused[case["family"]] += not strict_results(case)["validate"].ok


def out_of_memory(case: Case) -> bool:
    """Return whether Kafka's heap ended, instead of Kafka's reading.

    No JVM has an array of ``array_too_long``, whatever its heap: that answer is Kafka's.
    """
    answers = [case["expect"][stage] for stage in STAGES]
    return any(
        a.get("error") == "OutOfMemoryError" and a.get("cause") != "array_too_long" for a in answers
    )


def providers() -> list[str]:
    """Return the providers that work on this machine."""
    before = compression.provider()
    found = []
    for name in compression.PROVIDERS:
        try:
            found.append(compression.use(name))
        except BatchvalError as error:
            print(f"not compared under {name}: {error}")
    compression.use(before)
    return found


def make(
    seed: int, cases: int, to: Path, release: str = DEFAULT_KAFKA_VERSION, families: str = ""
) -> None:
    """Write cases with the answers of this release of Kafka to a .jsonl.gz file."""
    with tempfile.TemporaryDirectory() as folder:
        questions = str(Path(folder) / "questions.jsonl")
        settings = ("--seed", str(seed), "--cases", str(cases), "--families", families)
        jvm = oracle.options_for(cases)
        oracle.run("generate", *settings, questions, release=release, jvm=jvm)
        oracle.run("answer", questions, str(to), release=release, jvm=jvm)


def disagreements(file: Path, count: Count) -> Iterator[str]:
    """Yield one line for each way in which a case differs under a provider, and count."""
    before = compression.provider()
    names = providers()
    try:
        for case in read_cases([file]):
            if isinstance(case, NotACase):
                raise case
            if out_of_memory(case):
                count.unanswered.append(case["id"])
                yield f"{case['id']} not compared: Kafka ran out of its heap ({case['family']})"
                continue
            count.total[case["family"]] += 1
            origin = case["cfg"].get("origin", "CLIENT")
            is_appended = not case["expect"]["append"].get("skipped", False)
            count.appended[origin] += is_appended
            agreed = append_agreed = True
            for name in names:
                compression.use(name)
                for found in compare(case):
                    agreed = False
                    append_agreed = append_agreed and found.stage != "append"
                    yield f"{found} ({name}, {case['family']})"
            count.agree[case["family"]] += agreed
            count.refusals(case)
            count.appended_agree[origin] += is_appended and append_agreed
    finally:
        compression.use(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="by default one at random, which is printed")
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help=f"default {DEFAULT_CASES}")
    parser.add_argument(
        "--kafka-version",
        default=DEFAULT_KAFKA_VERSION,
        metavar="RELEASE",
        help=f"whose classes answer, default {DEFAULT_KAFKA_VERSION}: any release on Maven Central "
        "from 2.8.0 on, or all that have a corpus",
    )
    parser.add_argument(
        "--families", default="", help="those alone whose names start so, for example append_"
    )
    parser.add_argument("--keep", type=Path, help="write the answered cases to this .jsonl.gz file")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    releases = oracle.RELEASES if options.kafka_version == ALL else [options.kafka_version]
    if options.keep and len(releases) > 1:
        parser.error("--keep cannot be combined with --kafka-version all: name one release")
    try:
        agreed = [ask(release, seed, options) for release in releases]
    except oracle.OracleUnavailable as error:
        print(f"conformance: {error}", file=sys.stderr)
        return NO_JDK
    return int(not all(agreed))


def ask(release: str, seed: int, options: argparse.Namespace) -> bool:
    """Make cases, ask this release and compare. Return whether all agree."""
    print(f"seed {seed}, {options.cases} cases, Kafka {release}", flush=True)
    count = Count()
    with tempfile.TemporaryDirectory() as folder:
        file = options.keep or Path(folder) / "cases.jsonl.gz"
        make(seed, options.cases, file, release, options.families)
        for line in disagreements(file, count):
            print(line, flush=True)
    print(f"{'family':32} {'agree':>16} {'Kafka refuses':>14} {'strict refuses':>15}")
    for family in sorted(count.total):
        agree = f"{count.agree[family]} of {count.total[family]}"
        print(
            f"{family:32} {agree:>16} {count.kafka_refused[family]:14} {count.strict_refused[family]:15}"
        )
    print(
        f"refused by Kafka: {count.kafka_refused.total()}, by strict: {count.strict_refused.total()}"
    )
    for origin in sorted(count.appended):
        print(f"append, {origin:24} {count.appended_agree[origin]:6} of {count.appended[origin]:6}")
    print(f"not compared: {len(count.unanswered)}")
    total, agree = count.total.total(), count.agree.total()
    print(f"conformance: {agree} of {total} agree", flush=True)
    return agree == total > 0


if __name__ == "__main__":
    sys.exit(main())
