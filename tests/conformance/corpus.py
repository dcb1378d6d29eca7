"""The sample of the generator's cases that lies in the repository, with Kafka's answers: ``fixtures/corpus/``.

    python tests/conformance/corpus.py [FILE]        writes it anew; by default where it lies

Every family, a thousand cases of each of three seeds, compressed without a time, so that equal cases are equal bytes.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import oracle

FILE = Path(__file__).resolve().parents[2] / "fixtures" / "corpus" / "sample.jsonl.gz"
SEEDS = (104, 107, 112)
CASES = 1000


def of_seed(seed: int, cases: int = CASES) -> bytes:
    """Generated and answered cases, as JSON lines."""
    with tempfile.TemporaryDirectory() as folder:
        questions, answers = (str(Path(folder) / name) for name in ("questions.jsonl", "answers.jsonl"))
        oracle.run("generate", "--seed", str(seed), "--cases", str(cases), questions)
        oracle.run("answer", questions, answers)
        return Path(answers).read_bytes()


def write(to: Path) -> None:
    """Generates, asks Kafka, writes."""
    oracle.jar()
    with ThreadPoolExecutor() as several:
        text = b"".join(several.map(of_seed, SEEDS))
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
