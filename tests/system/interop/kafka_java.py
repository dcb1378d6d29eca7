"""Java for Kafka: the command, class paths by Maven, programs that tests compile.

The class path is resolved through kafka/pom.xml and kept in kafka/target/.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.fetching import locked, maven
from tests.support.java_classes import compiled

__all__ = [
    "POM",
    "TARGET",
    "BrokerError",
    "ToolMissing",
    "classpath",
    "find_java",
    "java_command",
    "java_version",
]

ROOT = Path(__file__).resolve().parents[3]
KAFKA_VERSION = "4.4.0"
MIN_JAVA = 17
POM = Path(__file__).resolve().parent / "kafka" / "pom.xml"
TARGET = POM.parent / "target"


class BrokerError(RuntimeError):
    """The broker could not be started or stopped; the first line says why, the broker's last log
    lines follow.
    """


class ToolMissing(BrokerError):
    """Java or Maven is not on this machine: a reason to skip, where a test may be skipped."""


@functools.cache
def find_java() -> str:
    """Find the first java that is new enough for Kafka: JAVA_HOME, PATH, the newest installed
    JDK.
    """
    first = [str(Path(home) / "bin" / "java")] if (home := os.environ.get("JAVA_HOME")) else []
    first += [java] if (java := shutil.which("java")) else []
    installed = [str(path) for path in Path("/usr/lib/jvm").glob("*/bin/java")]
    for java in [*first, *sorted(installed, key=java_version, reverse=True)]:
        if java_version(java) >= MIN_JAVA:
            return java
    seen = ", ".join(f"{java} is {java_version(java)}" for java in [*first, *installed])
    raise ToolMissing(
        f"Kafka {KAFKA_VERSION} needs Java {MIN_JAVA} or newer: {seen or 'no java found'}"
    )


@functools.cache
def java_version(java: str) -> int:
    """Return the feature release (17, 25) of this java, or 0 if it does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else 0


#: a profile that is a release of Kafka
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


def classpath(profile: str = "broker") -> str:
    """Return the class path of a broker with the Java clients.

    ``profile``: "3.9" and full numbers such as "4.2.1" are brokers of that release; "clients-2.8"
    are the Java clients of Kafka 2.8; "tools" are Kafka's own commands.
    """
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    kept = TARGET / f"{profile}-{digest}.classpath"
    TARGET.mkdir(exist_ok=True)
    with locked(TARGET / "lock"):
        if not kept.exists() or not all(
            os.path.exists(jar) for jar in kept.read_text().split(os.pathsep)
        ):
            _resolve(profile, kept)
        return kept.read_text()


def _resolve(profile: str, kept: Path) -> None:
    fresh = kept.with_suffix(".new")
    arguments = ["-f", str(POM), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    if _RELEASE.fullmatch(profile):
        arguments.append(f"-Dkafka.version={profile}")
    elif profile != "broker":
        arguments += ["-P", profile]
    try:
        done = maven(*arguments, java=Path(find_java()), cwd=TARGET)
    except FileNotFoundError as error:
        raise ToolMissing(str(error)) from None
    if done.returncode or not fresh.exists():
        output = (done.stdout + done.stderr).splitlines()
        reason = next(
            (line for line in output if "[ERROR]" in line), output[-1] if output else "no output"
        )
        raise BrokerError(
            f"Maven could not resolve {POM.name}: {reason.replace('[ERROR]', '').strip()}"
        )
    fresh.replace(kept)


def java_command(
    main: str, *args: str, profile: str = "broker", heap: str = "384m", jvm: Sequence[str] = ()
) -> list[str]:
    """Return a command line of this class path; its flags make it start fast and stay small.

    ``main``: a class, or the path of a source file, which is compiled once.
    """
    jars = classpath(profile)
    if main.endswith(".java"):
        source = ROOT / main
        jars, main = (
            f"{jars}{os.pathsep}{compiled([source], jars, find_java(), TARGET)}",
            source.stem,
        )
    log = [
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    ]
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    fast = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return [find_java(), f"-Xmx{heap}", *fast, *quiet, *log, *jvm, "-cp", jars, main, *args]
