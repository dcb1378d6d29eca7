"""The samples of the generator's cases that lie in the repository, with Kafka's answers:
``fixtures/corpus/``.

    python tests/evidence/conformance/corpus.py [FILE]               writes that of 4.4 anew
                                                              where it lies
    python tests/evidence/conformance/corpus.py --kafka-version 3.9  writes that of 3.9 anew

4.4: every family, a thousand cases of each of three seeds. 3.9, 4.1: every family, and all cases of
the families that brokers before 4.4 alone have. Compressed without a time, so that equal cases are
equal bytes.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.evidence.conformance import fresh, oracle

FILE = Path(__file__).resolve().parents[3] / "fixtures" / "corpus" / "sample.jsonl.gz"
SEEDS = (104, 107, 112)
CASES = 1000

#: the samples of versions before 4.4
VERSION_FILES = {version: FILE.with_name(f"kafka-{version}.jsonl.gz") for version in ("3.9", "4.1")}
VERSION_SEED = 113
VERSION_CASES = 2400
#: the generator has these for versions before 4.4 alone
VERSION_FAMILIES = ("stated_length", "produce_v0_v2")
#: of the other families: the first case, and one in so many
ONE_IN = 12


def of_seed(
    seed: int, cases: int = CASES, kafka_version: str = oracle.DEFAULT_KAFKA_VERSION
) -> bytes:
    """Return generated and answered cases as JSON lines."""
    with tempfile.TemporaryDirectory() as folder:
        questions, answers = (
            str(Path(folder) / name) for name in ("questions.jsonl", "answers.jsonl")
        )
        settings, jvm = ("--seed", str(seed), "--cases", str(cases)), oracle.options_for(cases)
        oracle.run("generate", *settings, questions, kafka_version=kafka_version, jvm=jvm)
        oracle.run("answer", questions, answers, kafka_version=kafka_version, jvm=jvm)
        return Path(answers).read_bytes()


def write(to: Path) -> None:
    """Generate the cases, ask Kafka, and write the file."""
    oracle.jar()
    with ThreadPoolExecutor() as several:
        text = b"".join(several.map(of_seed, SEEDS))
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(gzip.compress(text, 9, mtime=0))


def of_version(version: str) -> bytes:
    """Return the sample of a version before 4.4 as JSON lines, without cases that exhausted Kafka's
    heap.
    """
    kept, families, others = [], set(), 0
    for line in of_seed(VERSION_SEED, VERSION_CASES, version).splitlines(keepends=True):
        case = json.loads(line)
        if fresh.out_of_memory(case):
            continue
        special = case["family"] in VERSION_FAMILIES
        others += not special
        if special or case["family"] not in families or others % ONE_IN == 0:
            kept.append(line)
        families.add(case["family"])
    return b"".join(kept)


def write_version(version: str) -> None:
    """Generate the cases, ask this version of Kafka, and write the file."""
    VERSION_FILES[version].write_bytes(gzip.compress(of_version(version), 9, mtime=0))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--kafka-version"]:
        write_version(sys.argv[2])
        sys.exit()
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
