"""The clients: what each can do, and the commands that do it.

What a client needs is fetched by pinned versions and built once: Java by the profiles of
tests/system/interop/kafka/pom.xml, sarama by its go.mod, kafka-python by requirements/.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from tests.support import go, old_clients
from tests.support.fetching import locked
from tests.support.java_classes import compiled
from tests.system.interop.kafka_java import TARGET, classpath, find_java, java_command

__all__ = ["CLIENTS", "Client", "named"]

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[3]
PACKAGE = "tests.system.interop.old_clients"
CODECS = ("none", "gzip", "snappy", "lz4")
PRODUCE = frozenset({*CODECS, "acks=1", "acks=0"})
READ = frozenset({"own", "headers", "zstd", "transactions", "offsets", "commit"})


@dataclass(frozen=True)
class Client:
    """A release of a client, or one that takes its broker for an old one."""

    family: str
    version: str
    operations: frozenset[str]
    #: of a family whose releases differ
    release: str = ""
    #: operations of the programs -> class, where they are not one program
    programs: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """Return the name, as the table has it."""
        if self.family == "Java":
            return f"Java {self.release}"
        if self.family == "raw frames":
            return f"raw frames, {self.version}"
        quoted = (
            f"({self.version.replace('.', ', ')})"
            if self.family == "kafka-python"
            else self.version
        )
        return f"{self.family} {self.release} as {quoted}"

    @property
    def slug(self) -> str:
        """Return the name as part of a topic's name."""
        kept = "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())
        return "-".join(part for part in kept.split("-") if part)

    @property
    def codecs(self) -> list[str]:
        """Return the codecs that it can send."""
        return [codec for codec in CODECS if codec in self.operations]

    def command(self, operation: str) -> list[str]:
        """Return the command of an operation, without NAME=VALUE."""
        if self.family == "Java":
            profile = "clients-" + self.release.rsplit(".", 1)[0]
            return [*_java(profile, self.programs[operation]), operation]
        if self.family == "sarama":
            return [str(go.built(FOLDER / "sarama")), operation, f"version={self.version}"]
        module = self.family.replace("-", "_").replace("raw frames", "raw") + "_client"
        arguments = (
            [] if self.family == "raw frames" or not self.version else [f"version={self.version}"]
        )
        return [sys.executable, "-W", "ignore", "-m", f"{PACKAGE}.{module}", operation, *arguments]

    def environment(self) -> dict[str, str]:
        """Return the environment of its commands."""
        path = [str(ROOT)]
        if self.family == "kafka-python":
            path.insert(0, str(_packages(self.release)))
        return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


@functools.cache
def _classes(profile: str) -> Path:
    """Compile the Java programs against a release; return the folder of their classes."""
    names = [
        "Report",
        "OldProducer",
        "OldSimpleConsumer" if profile == "clients-0.8.2" else "OldConsumer",
    ]
    names += ["OldAdmin"] if profile in {"clients-0.11.0", "clients-1.1"} else []
    sources = [FOLDER / "java" / f"{name}.java" for name in names]
    jars = classpath(profile)
    return compiled(sources, jars, find_java(), TARGET)


def _java(profile: str, main: str) -> list[str]:
    """Return the command of a Java program, with its classes in the class path."""
    command = java_command(main, profile=profile, heap="128m")
    at = command.index("-cp") + 1
    command[at] = f"{_classes(profile)}{os.pathsep}{command[at]}"
    # the log of a client goes to stderr, and is of no use there
    return [part.replace("defaultLogLevel=warn", "defaultLogLevel=off") for part in command]


@functools.cache
def _packages(release: str) -> Path:
    """Return the folder of a release of kafka-python, installed once."""
    names = ["old-clients" if release == "2.0.2" else "old-clients-1.4", "old-clients-lz4"]
    text = b"".join((old_clients.REQUIREMENTS / f"{name}.txt").read_bytes() for name in names)
    version = ".".join(map(str, sys.version_info[:2]))
    folder = (
        ROOT
        / "build"
        / "peers"
        / f"kafka-python-{release}-{version}-{hashlib.sha256(text).hexdigest()[:12]}"
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / "lock"):
        if not folder.is_dir():
            fresh = folder.with_suffix(".new")
            old_clients.installed(fresh, *names).rename(folder)
    return folder


def _java_client(release: str, *more: str) -> Client:
    consumer = "OldSimpleConsumer" if release.startswith("0.8") else "OldConsumer"
    programs = dict.fromkeys(("consume", "group", "offsets", "commit"), consumer)
    programs |= {"produce": "OldProducer", "admin": "OldAdmin"}
    return Client("Java", "", PRODUCE | READ | {*more}, release, programs)


def _sarama_release() -> str:
    lines = (FOLDER / "sarama" / "go.mod").read_text().splitlines()
    return next(line.split()[-1].removeprefix("v") for line in lines if "IBM/sarama" in line)


def _all() -> list[Client]:
    listed = [
        _java_client("0.8.2.2"),
        _java_client("0.9.0.1", "group"),
        _java_client("0.10.0.1", "group", "PLAIN"),
        _java_client("0.10.2.2", "group", "PLAIN", "SCRAM-SHA-256"),
        _java_client("0.11.0.3", "group", "PLAIN", "SCRAM-SHA-256", "admin"),
        _java_client("1.1.1", "group", "PLAIN", "SCRAM-SHA-256", "admin"),
    ]
    for release in ("1.4.7", "2.0.2"):
        for version in ("0.8.2", "0.9", "0.10", "0.10.2", "0.11"):
            more = set() if version == "0.8.2" else {"group"}
            if not version.startswith(("0.8", "0.9")):
                more |= {"PLAIN"} if release == "1.4.7" else {"PLAIN", "SCRAM-SHA-256"}
            listed.append(Client("kafka-python", version, PRODUCE | READ | more, release))
    for version in ("0.8.2.0", "0.9.0.0", "0.10.0.0", "0.10.2.0", "0.11.0.0"):
        is_new = not version.startswith(("0.8", "0.9"))
        # what sarama itself asks of the version
        lacking = set() if is_new else {"lz4"}
        more = {"PLAIN"} if is_new else set()
        more |= {"group", "SCRAM-SHA-256"} if version in {"0.10.2.0", "0.11.0.0"} else set()
        listed.append(
            Client("sarama", version, (PRODUCE | READ | more) - lacking, _sarama_release())
        )
    for version in ("0.8.2", "0.9.0", "0.10.0"):
        more = {"0.8.2": set(), "0.9.0": {"group"}, "0.10.0": {"group", "PLAIN"}}[version]
        listed.append(Client("librdkafka", version, PRODUCE | READ | more, _librdkafka_release()))
    listed.append(Client("raw frames", "Produce 0", PRODUCE - {"snappy", "lz4"}))
    return listed


def _librdkafka_release() -> str:
    return str(confluent_kafka.libversion()[0])


CLIENTS = _all()


def named(*parts: str) -> list[Client]:
    """Return the clients whose names contain one of these texts. Raises ValueError for none."""
    found = [
        client for client in CLIENTS if any(part.lower() in client.name.lower() for part in parts)
    ]
    if not found:
        raise ValueError(
            f"no client is named {', '.join(parts)}: there are {', '.join(one.name for one in CLIENTS)}"
        )
    return found
