"""Fresh cases, end to end: makes new ones from a seed, asks Apache Kafka's own classes, and compares.

    python tests/conformance/fresh.py --seed S [--cases N] [--families PREFIX] [--keep FILE]

Each case is compared under both codec providers. Prints every disagreement, then the number of cases of each
family, and of each origin that a real log answered (the stage ``append``);
the last line is ``conformance: N of M agree`` (a case agrees if it does under both). Exit code 0 only if all agree,
3 where there is no JDK or Maven.

Where Kafka itself ran out of memory, which takes a record or a count that claims about two gigabytes, its answer tells
of the heap and not of the batch. Such a case is printed, is not compared, and is not among the M.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import oracle  # noqa: E402

from batchval import compression  # noqa: E402
from batchval.cli.cases import STAGES, Case, NotACase, compare, read_cases  # noqa: E402
from batchval.errors import BatchvalError  # noqa: E402

DEFAULT_CASES = 2000
NO_JDK = 3


class Count(NamedTuple):
    """Of each family: how many cases there were, and how many agreed."""

    total: Counter[str]
    agree: Counter[str]
    unanswered: list[str]
    appended: Counter[str]
    appended_agree: Counter[str]


def new_count() -> Count:
    """Return a Count of nothing."""
    return Count(Counter(), Counter(), [], Counter(), Counter())


def out_of_memory(case: Case) -> bool:
    """Did Kafka's heap end, instead of Kafka's reading?"""
    return any(case["expect"][stage].get("error") == "OutOfMemoryError" for stage in STAGES)


def providers() -> list[str]:
    """Those that work here."""
    before = compression.provider()
    found = []
    for name in compression.PROVIDERS:
        try:
            found.append(compression.use(name))
        except BatchvalError as error:
            print(f"not compared under {name}: {error}")
    compression.use(before)
    return found


def make(seed: int, cases: int, to: Path, families: str = "") -> None:
    """Writes answered cases to a .jsonl.gz file."""
    with tempfile.TemporaryDirectory() as folder:
        questions = str(Path(folder) / "questions.jsonl")
        oracle.run("generate", "--seed", str(seed), "--cases", str(cases), "--families", families, questions)
        oracle.run("answer", questions, str(to))


def disagreements(file: Path, count: Count) -> Iterator[str]:
    """One line for each way in which a case differs under a provider; counts on the way."""
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
            count.appended_agree[origin] += is_appended and append_agreed
    finally:
        compression.use(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="by default one at random, which is printed")
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help=f"default {DEFAULT_CASES}")
    parser.add_argument("--families", default="", help="those alone whose names start so, for example append_")
    parser.add_argument("--keep", type=Path, help="write the answered cases to this .jsonl.gz file")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.cases} cases", flush=True)
    count = new_count()
    with tempfile.TemporaryDirectory() as folder:
        file = options.keep or Path(folder) / "cases.jsonl.gz"
        try:
            make(seed, options.cases, file, options.families)
        except oracle.OracleUnavailable as error:
            print(f"conformance: {error}", file=sys.stderr)
            return NO_JDK
        for line in disagreements(file, count):
            print(line, flush=True)
    for family in sorted(count.total):
        print(f"{family:32} {count.agree[family]:6} of {count.total[family]:6}")
    for origin in sorted(count.appended):
        print(f"append, {origin:24} {count.appended_agree[origin]:6} of {count.appended[origin]:6}")
    print(f"not compared: {len(count.unanswered)}")
    total, agree = count.total.total(), count.agree.total()
    print(f"conformance: {agree} of {total} agree")
    return int(agree != total or not total)


if __name__ == "__main__":
    sys.exit(main())
