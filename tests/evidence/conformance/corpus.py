"""The samples of the generator's cases that lie in the repository, with Kafka's answers:
``fixtures/corpus/``.

    python tests/evidence/conformance/corpus.py [FILE]               writes that of 4.4.0 anew
                                                              where it lies
    python tests/evidence/conformance/corpus.py --kafka-version 3.9.2  writes that of 3.9.2 anew
    python tests/evidence/conformance/corpus.py --kafka-version all    writes all but that of 4.4.0

4.4.0: every family, a thousand cases of each of three seeds. Other releases: every family, and more
cases of the families in which releases differ. Compressed without a time, so that equal cases are
equal bytes.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.evidence.conformance import fresh, oracle

FILE = Path(__file__).resolve().parents[3] / "fixtures" / "corpus" / "sample.jsonl.gz"
SEEDS = (104, 107, 112)
CASES = 1000

#: the samples of the other releases
RELEASE_FILES = {
    release: FILE.with_name(f"kafka-{release}.jsonl.gz")
    for release in oracle.RELEASES
    if release != oracle.DEFAULT_RELEASE
}
RELEASE_SEED = 113
RELEASE_CASES = 2400
#: the generator has these for releases without the check of lengths, and for 3.x, alone
RELEASE_FAMILIES = ("stated_length", "produce_v0_v2")
#: of the families whose names start so: one case in so many
ONE_IN = {"follower_": 2, "append_producers": 2, "": 12}


def of_seed(seed: int, cases: int = CASES, release: str = oracle.DEFAULT_RELEASE) -> bytes:
    """Return generated and answered cases as JSON lines."""
    with tempfile.TemporaryDirectory() as folder:
        questions, answers = (
            str(Path(folder) / name) for name in ("questions.jsonl", "answers.jsonl")
        )
        settings, jvm = ("--seed", str(seed), "--cases", str(cases)), oracle.options_for(cases)
        oracle.run("generate", *settings, questions, release=release, jvm=jvm)
        oracle.run("answer", questions, answers, release=release, jvm=jvm)
        return Path(answers).read_bytes()


def write(to: Path) -> None:
    """Generate the cases, ask Kafka, and write the file."""
    oracle.jar()
    with ThreadPoolExecutor() as several:
        text = b"".join(several.map(of_seed, SEEDS))
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(gzip.compress(text, 9, mtime=0))


def of_release(release: str) -> bytes:
    """Return the sample of another release than 4.4.0 as JSON lines, without cases that exhausted
    Kafka's heap.
    """
    kept, families = [], Counter()
    for line in of_seed(RELEASE_SEED, RELEASE_CASES, release).splitlines(keepends=True):
        case = json.loads(line)
        if fresh.out_of_memory(case):
            continue
        family = case["family"]
        group = next(start for start in ONE_IN if family.startswith(start))
        is_first = family not in families
        families[family] += 1
        families[f"of {group}"] += 1
        if family in RELEASE_FAMILIES or is_first or families[f"of {group}"] % ONE_IN[group] == 0:
            kept.append(line)
    return b"".join(kept)


def write_release(release: str) -> None:
    """Generate the cases, ask this release of Kafka, and write the file."""
    RELEASE_FILES[release].write_bytes(gzip.compress(of_release(release), 9, mtime=0))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--kafka-version"]:
        for release in RELEASE_FILES if sys.argv[2] == "all" else sys.argv[2:3]:
            write_release(release)
        sys.exit()
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
