"""Tells which row of batchval.kafka_versions a release of Apache Kafka belongs to.

    python tests/evidence/conformance/releases.py RELEASE [--cases N] [--seed S]

Builds the oracle of the release, asks it all cases that lie in the repository and N fresh ones, and
compares its answers with those of every row. Prints how many cases of how many agree with each row,
then ``Kafka RELEASE belongs to the row ROW``, or the cases that the nearest row answers otherwise.
Exit code 0 with a row, 1 without one, 3 without JDK 17 or Maven.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from batchval.cli.cases import Case, compare, read_cases  # noqa: E402
from batchval.kafka_versions import KAFKA_VERSIONS, find_release  # noqa: E402
from tests.evidence.conformance import corpus, fresh, oracle  # noqa: E402

#: cases in which batchval once differed: of 4.4.0, and of the release that each case names
FOUND = Path(__file__).with_name("found.jsonl")
FOUND_OF_RELEASES = Path(__file__).with_name("found-releases.jsonl")
GOLDEN = ROOT / "fixtures" / "golden"
DEFAULT_CASES = 3000
SHOWN = 20
NO_JDK = 3
#: what the oracle asks of a line of the corpus
ASKED = ("id", "family", "cfg", "batch_hex")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", help="a full number, for example 4.3.2")
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help="fresh cases")
    parser.add_argument("--seed", type=int, default=1, help="of the fresh cases")
    options = parser.parse_args(arguments)
    try:
        cases = list(answered(options.release, options.cases, options.seed))
    except oracle.OracleUnavailable as error:
        print(f"releases: {error}", file=sys.stderr)
        return NO_JDK
    return say(options.release, cases)


def answered(release: str, count: int, seed: int) -> Iterator[Case]:
    """Yield all cases of the repository and fresh ones with the answers of this release."""
    yield from kept(release)
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "new.jsonl"
        fresh.make(seed, count, new, release)
        yield from comparable(new)


def kept(release: str) -> Iterator[Case]:
    """Yield all cases of the repository with the answers of this release."""
    with tempfile.TemporaryDirectory() as folder:
        questions, answers = Path(folder) / "asked.jsonl", Path(folder) / "answered.jsonl"
        questions.write_text("".join(sorted(asked(release))), "utf-8")
        oracle.run("answer", str(questions), str(answers), release=release)
        yield from comparable(answers)


def comparable(file: Path) -> Iterator[Case]:
    """Yield the cases that do not tell of the heap, and that the release can be asked."""
    for case in read_cases([file]):
        if isinstance(case, Exception):
            raise case
        if not fresh.out_of_memory(case) and not is_older_request(case):
            yield case


def is_older_request(case: Case) -> bool:
    """Return whether Kafka 4 has no parser for the request that would bring this case."""
    return case["expect"]["append"].get("code_name") == "UNSUPPORTED_VERSION"


def asked(release: str) -> Iterator[str]:
    """Yield the questions of the repository, those of the same bytes and settings once."""
    seen: set[str] = set()
    has_one_bound = find_release(release).row.timestamp_bounds == "difference"
    files = [GOLDEN, corpus.FILE, *corpus.RELEASE_FILES.values(), FOUND, FOUND_OF_RELEASES]
    for case in read_cases(files):
        if isinstance(case, Exception):
            raise case
        if has_one_bound:
            case["cfg"] = with_one_bound(case["cfg"])
        question = json.dumps([case["cfg"], case["batch_hex"]], sort_keys=True)
        if question not in seen:
            seen.add(question)
            yield json.dumps({name: case[name] for name in ASKED if name in case}) + "\n"


def with_one_bound(cfg: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose bounds of timestamps are both the one that they name, as the generator
    makes them for releases that have one bound.
    """
    named = "after_max_ms" if "after_max_ms" in cfg else "before_max_ms"
    bound = cfg.get(named, 2**63 - 1)
    return cfg | {"before_max_ms": bound, "after_max_ms": bound}


def say(release: str, cases: list[Case]) -> int:
    """Print how each row answers the cases, and the row of the release."""
    differing = {}
    for row in KAFKA_VERSIONS:
        found = [compare(case | {"kafka_version": row}) for case in cases]
        differing[row] = [one for one in found if one]
        agree = len(cases) - len(differing[row])
        print(f"row {row:8} {agree:6} of {len(cases)} agree", flush=True)
    nearest = min(differing, key=lambda row: len(differing[row]))
    if differing[nearest]:
        print(f"Kafka {release} has no row; nearest is {nearest}, which differs in")
        for disagreements in differing[nearest][:SHOWN]:
            print(f"  {disagreements[0]}")
        return 1
    known = find_release(release)
    print(f"Kafka {release} belongs to the row {nearest}")
    if known.row.name != nearest or known.is_newer:
        print(f"batchval.kafka_versions has it in the row {known.row.name}: add its range")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
