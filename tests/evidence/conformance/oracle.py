"""Builds and runs the oracle: a Java program in ``oracle/`` that asks Apache Kafka's own classes.

Built once for each state of its sources, by Maven, into a cache folder outside the repository
(``$BATCHVAL_ORACLE_CACHE``, else ``$XDG_CACHE_HOME/batchval``, else ``~/.cache/batchval``).
Kafka's answers depend on the JDK in gzip streams (JDK-7036144), so those that are compared are
always JDK 17's: that of ``JAVA_HOME``, else of the path, else one that is installed. Other commands
take the first that is 17 or newer.

    python tests/evidence/conformance/oracle.py [--kafka-version 3.9.2] COMMAND ...

builds if needed, then runs the oracle's own command. There is one jar for each release of Kafka;
the default is 4.4.0. ``RELEASES`` are those whose answers the tests hold; any other release from
2.8.0 on can be named, too, as far as its classes take the same calls.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.support.fetching import maven

__all__ = ["OracleFailed", "OracleUnavailable", "answer", "jar", "jar_path", "java", "run"]

SOURCES = Path(__file__).resolve().parent / "oracle"
MIN_JAVA = 17
#: Where packages install JDKs, below the root.
INSTALLED = (
    "usr/lib/jvm/*/bin",
    "opt/java/*/bin",
    "Library/Java/JavaVirtualMachines/*/Contents/Home/bin",
)
#: Commands whose output is Kafka's answer.
ANSWERS = frozenset({"accepts", "answer", "down-convert", "golden"})
#: batchval.kafka_versions has the same; this file also runs where batchval is not installed
DEFAULT_RELEASE = "4.4.0"
#: One at each end of each range of batchval.kafka_versions that Maven Central has, oldest first.
RELEASES = (
    *("2.8.1", "2.8.2", "3.0.0", "3.0.1", "3.0.2", "3.1.1", "3.1.2", "3.2.1", "3.5.2"),
    *("3.6.2", "3.7.2", "3.8.1", "3.9.0", "3.9.2", "4.0.0", "4.0.2"),
    *("4.1.2", "4.2.1", "4.2.2", "4.3.1", "4.4.0"),
)
#: The one that converts batches down for Fetch 0 to 3, which Kafka 4 does not.
DOWN_CONVERSION_RELEASE = "3.9.2"
_OLDEST = (2, 8, 0)
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
#: a record may claim two gigabytes, and Kafka takes them before it reads
HEAP = "-Xmx6g"
#: For runs that end before the JVM's optimizing compiler has saved what it costs.
QUICK = ("-XX:TieredStopAtLevel=1", "-Xshare:auto")
#: The most cases for which QUICK takes less CPU.
QUICK_CASES = 2000


class OracleUnavailable(RuntimeError):
    """This machine has no JDK or no Maven."""


class OracleFailed(RuntimeError):
    """The oracle was not built, or one of its commands ended with an error."""


def java(*, answers: bool = False) -> str:
    """Return the java command: for ``answers`` a JDK 17's, else one that is 17 or newer.

    Raises:
        OracleUnavailable: there is none.
    """
    found = [tool for folder in _folders() if (tool := str(folder / "java")) and _version(tool)]
    for tool in found:
        if _version(tool) == MIN_JAVA or (not answers and _version(tool) > MIN_JAVA):
            return tool
    seen = ", ".join(f"{tool} is {_version(tool)}" for tool in found) or "no java here"
    if answers:
        raise OracleUnavailable(
            f"the oracle needs a JDK {MIN_JAVA}, "
            f"other versions read gzip streams otherwise (JDK-7036144): {seen}; "
            f"install one, for example openjdk-{MIN_JAVA}-jdk-headless, or set JAVA_HOME"
        )
    raise OracleUnavailable(f"the oracle needs a JDK, {MIN_JAVA} or newer: {seen}")


def _folders() -> list[Path]:
    """Return folders with a java command: of JAVA_HOME, of PATH, of installed JDKs."""
    found = [Path(os.environ["JAVA_HOME"]) / "bin"] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        found.append(Path(on_path).parent)
    for pattern in INSTALLED:
        found += sorted(Path("/").glob(pattern))
    return [folder for folder in found if (folder / "java").is_file()]


@functools.cache
def _version(java: str) -> int:
    """Return the feature release of this java (17, 25; 8 prints 1.8), or 0 if it does not run."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def cache_folder() -> Path:
    """Return the folder of built oracles, one for each state of the sources."""
    if "BATCHVAL_ORACLE_CACHE" in os.environ:
        return Path(os.environ["BATCHVAL_ORACLE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchval"


def _source_files() -> list[Path]:
    return [SOURCES / "pom.xml", *sorted(p for p in (SOURCES / "src").rglob("*") if p.is_file())]


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in _source_files():
        digest.update(str(file.relative_to(SOURCES)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def jar_path(release: str = DEFAULT_RELEASE) -> Path:
    """Return where the jar of this release is once it has been built."""
    return cache_folder() / f"oracle-{release}-{_fingerprint()}.jar"


@functools.cache
def jar(release: str = DEFAULT_RELEASE) -> Path:
    """Build the jar of this release if this state of the sources has none; return its path."""
    properties = _properties(release)
    built = jar_path(release)
    if not built.is_file():
        _build(built, properties)
    return built


def _properties(release: str) -> list[str]:
    """Return what the build of this release passes to Maven (oracle/pom.xml)."""
    match = _RELEASE.fullmatch(release)
    numbers = tuple(int(part) for part in match.groups()) if match else ()
    if numbers < _OLDEST:
        raise OracleFailed(
            f"an oracle needs a full release of 2.8.0 or newer, for example {DEFAULT_RELEASE}, "
            f"not {release!r}"
        )
    more = {DEFAULT_RELEASE: "newest", DOWN_CONVERSION_RELEASE: "down"}.get(release, "none")
    properties = [f"-Dkafka.version={release}", f"-Dmore={more}"]
    if numbers < (4, 3, 0):
        properties.append("-Drecord.package=org.apache.kafka.common.record")
    if numbers < (4, 4, 0):
        properties.append("-Dutils.package=org.apache.kafka.common.utils")
    if numbers < (4, 1, 0):
        properties.append("-Dlog.artifact=kafka_2.13")
    if numbers < (3, 7, 2):
        properties.append("-Pnewer-zstd")
    return properties


def _build(to: Path, properties: list[str]) -> None:
    compilers = [
        folder
        for folder in _folders()
        if (folder / "javac").is_file() and _version(str(folder / "java")) >= MIN_JAVA
    ]
    if not compilers:
        raise OracleUnavailable(
            f"compiling the oracle needs a JDK, {MIN_JAVA} or newer, with a javac"
        )
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=to.parent) as folder:
        for file in _source_files():
            copy = Path(folder) / file.relative_to(SOURCES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        try:
            done = maven("package", *properties, java=compilers[0] / "javac", cwd=Path(folder))
        except FileNotFoundError as error:
            raise OracleUnavailable(str(error)) from None
        if done.returncode:
            raise OracleFailed(f"mvn package failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
        # concurrent builds have the same output: the last one replaces the file
        (Path(folder) / "target" / "oracle.jar").replace(to)


def command(*arguments: str, release: str = DEFAULT_RELEASE, jvm: Sequence[str] = ()) -> list[str]:
    """Return the command line for one of the oracle's commands; ``jvm``: options of the JVM."""
    runtime = java(answers=bool(ANSWERS.intersection(arguments[:1])))
    return [runtime, HEAP, "-XX:+UseSerialGC", *jvm, "-jar", str(jar(release)), *arguments]


def run(
    *arguments: str,
    stdin: bytes | None = None,
    release: str = DEFAULT_RELEASE,
    jvm: Sequence[str] = (),
) -> bytes:
    """Run a command of the oracle and return its output. Raises OracleFailed with its errors."""
    command_line = command(*arguments, release=release, jvm=jvm)
    done = subprocess.run(command_line, input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise OracleFailed(
            f"oracle {' '.join(arguments)}: {done.stderr.decode(errors='replace')[-2000:]}"
        )
    return done.stdout


def options_for(cases: int) -> tuple[str, ...]:
    """Return the JVM's options with which this many cases take the least CPU."""
    return QUICK if cases <= QUICK_CASES else ()


def answer(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return cases with ``batch_hex`` and ``cfg``, each with Kafka's answer as ``expect``.

    A case is asked of the release that its ``kafka_version`` names, else of 4.4.0.
    """
    answered = list(cases)
    places: dict[str, list[int]] = {}
    for place, case in enumerate(answered):
        places.setdefault(case.get("kafka_version", DEFAULT_RELEASE), []).append(place)
    for release, wanted in places.items():
        lines = "".join(json.dumps(answered[place]) + "\n" for place in wanted)
        jvm = options_for(len(wanted))
        answers = run("answer", "-", "-", stdin=lines.encode(), release=release, jvm=jvm)
        for place, line in zip(wanted, answers.splitlines(), strict=True):
            answered[place] = json.loads(line)
    return answered


def main() -> int:
    arguments, release = sys.argv[1:], DEFAULT_RELEASE
    if arguments[:1] == ["--kafka-version"] and len(arguments) > 1:
        release, arguments = arguments[1], arguments[2:]
    try:
        return subprocess.run(command(*arguments, release=release), check=False).returncode
    except (OracleUnavailable, OracleFailed) as error:
        print(f"oracle: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
