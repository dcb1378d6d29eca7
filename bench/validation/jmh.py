"""Time Kafka's own LogValidator with JMH on the same bytes: a JVM for each cell and round.

The benchmark is the oracle's (tests/evidence/conformance/oracle): ``brokerPath`` is what a broker
does before the append (batch loop with CRC, then LogValidator in place), ``validateInPlace`` is
LogValidator alone.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from bench import runs
from bench.validation import cells

# Half-second warm-ups: with fewer than six or seven the JIT is still at work where other programs
# share the cores.
FULL = ("-wi", "7", "-w", "500ms", "-i", "3", "-r", "300ms")
QUICK = ("-wi", "4", "-w", "500ms", "-i", "2", "-r", "200ms")


def build_jar() -> Path:
    """Build the oracle's jar with Maven if this state of its sources has none."""
    spec = importlib.util.spec_from_file_location(
        "oracle", runs.ROOT / "tests" / "evidence" / "conformance" / "oracle.py"
    )
    if spec is None or spec.loader is None:
        raise RuntimeError("tests/evidence/conformance/oracle.py is not here")
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    return Path(oracle.jar())


def write_batches(java: str, jar: Path, folder: Path) -> Path:
    """Write the bench batches with Kafka's own MemoryRecordsBuilder."""
    subprocess.run(
        [java, "-jar", str(jar), "bench-batches", str(folder)], check=True, capture_output=True
    )
    return folder


def version_of(java: str) -> tuple[int, str]:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    text = done.stderr or done.stdout
    number = re.search(r'version "(\d+)', text)
    build = re.search(r"\(build ([^,)]+)", text)
    return (int(number[1]) if number else 0), (build[1] if build else "?")


def newest_java() -> str | None:
    """Return the newest JDK of this machine."""
    found = {path for path in (shutil.which("java"), *glob.glob("/usr/lib/jvm/*/bin/java")) if path}
    if home := os.environ.get("JAVA_HOME"):
        found.add(f"{home}/bin/java")
    return max(sorted(found), key=lambda path: version_of(path)[0], default=None)


class Kafka:
    """JMH over one cell at a time."""

    def __init__(
        self, java: str, jar: Path, batches: Path, prefix: list[str], quick: bool = False
    ) -> None:
        self.java, self.jar, self.batches, self.prefix = java, jar, batches, prefix
        self.options = QUICK if quick else FULL

    def describe(self) -> str:
        with zipfile.ZipFile(self.jar) as jar:
            properties = jar.read("kafka/kafka-version.properties").decode()
        kafka = re.search(r"^version=(.+)$", properties, re.MULTILINE)
        return f"{kafka[1].strip() if kafka else '?'} on JDK {version_of(self.java)[1]}, JMH {' '.join(self.options)}"

    def ask(self, cell: cells.Cell, benchmark: str) -> dict[str, Any]:
        """Return {"ns": the mean of each iteration, wall, "bytes": allocated a batch}, or {"error":
        ...}.
        """
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "result.json"
            command = [
                *self.prefix,
                self.java,
                "-cp",
                str(self.jar),
                "org.openjdk.jmh.Main",
                rf"\.{benchmark}$",
            ]
            command += ["-p", f"folder={self.batches}", "-p", f"file={cell.name}.bin"]
            command += f"-f 1 -prof gc -foe true -v SILENT -rf json -rff {out}".split()
            command += [*self.options, "-jvmArgs", "-Xms1g -Xmx1g"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if done.returncode or not out.exists() or not out.stat().st_size:
                return {
                    "error": (done.stdout + done.stderr).strip()[:400]
                    or f"JMH ended with {done.returncode}"
                }
            (row,) = json.loads(out.read_text())
        allocated = next(
            (
                m["score"]
                for n, m in row["secondaryMetrics"].items()
                if n.endswith("gc.alloc.rate.norm")
            ),
            None,
        )
        return {"ns": row["primaryMetric"]["rawData"][0], "bytes": allocated}
