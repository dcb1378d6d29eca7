"""Kafka's own dump-log (org.apache.kafka.tools.DumpLogSegments): what it says of segments, a row a
batch, by its names.

Dumping /logs/orders-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 9 count: 10 … position: 0 CreateTime: 1795213800000 size: 317 magic: 2 …
isvalid: true
| offset: 0 CreateTime: 1795213800000 keySize: 5 valueSize: 10 …          with --deep-iteration
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.system.interop.kafka_broker import BrokerError, java_command

Row = dict[str, Any]


def dump_command(logs: Sequence[Path], deep: bool = True, heap: str = "384m") -> list[str]:
    arguments = ["--deep-iteration"] if deep else []
    arguments += ["--files", ",".join(map(str, logs))]
    return java_command(
        "org.apache.kafka.tools.DumpLogSegments", *arguments, profile="tools", heap=heap
    )


def dump(root: Path, deep: bool = True) -> list[Row]:
    """Return every batch of every */*.log in order, with ``deep`` its records counted.
    BrokerError.
    """
    logs = sorted(str(path.relative_to(root)) for path in root.glob("*/*.log"))
    rows: list[Row] = []
    while logs:
        command = dump_command([root / log for log in logs], deep)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        rows += parse_dump(done.stdout, root)
        if not done.returncode:
            break
        # the tool ends at the first batch it cannot read: add that, and go on with the next file
        stopped = re.findall(r"^Dumping (.*)$", done.stdout, re.MULTILINE)
        reason = next((line for line in done.stderr.splitlines() if "Exception: " in line), None)
        if not stopped or reason is None:
            raise BrokerError(f"Kafka's dump tool failed:\n{done.stderr[-2000:]}")
        last = str(Path(stopped[-1]).relative_to(root))
        reason = reason.split("Exception: ", 1)[1].replace(str(root) + "/", "")
        rows.append({"file": last, "stops": reason})
        logs = logs[logs.index(last) + 1 :]
    return rows


def parse_dump(text: str, root: Path) -> list[Row]:
    rows: list[Row] = []
    file = ""
    for line in text.splitlines():
        if line.startswith("Dumping "):
            file = str(Path(line.removeprefix("Dumping ")).relative_to(root))
        elif line.startswith("baseOffset: "):
            rows.append(
                {"file": file, **batch_fields(line), "records": 0, "nullKeys": 0, "nullValues": 0}
            )
        elif line.startswith("| offset: "):
            row = rows[-1]
            row["records"] += 1
            row["nullKeys"] += " keySize: -1 " in line
            row["nullValues"] += " valueSize: -1 " in line
            if marker := re.search(r" endTxnMarker: (\w+)", line):
                row["marker"] = marker[1]
        elif line and not line.startswith("Log starting offset: "):
            raise BrokerError(f"Kafka's dump tool says something unexpected of {file}: {line}")
    return rows


def batch_fields(line: str) -> Row:
    row: Row = {}
    for name, value in re.findall(r"(\w+): (\S+)", line):
        if name in {"CreateTime", "LogAppendTime", "NoTimestampType"}:
            row |= {"timestampType": name, "maxTimestamp": int(value)}
        elif name == "deleteHorizonMs":
            horizon = re.search(r"\d+", value)
            row[name] = int(horizon[0]) if horizon else None
        elif value in {"true", "false"}:
            row[name] = value == "true"
        else:
            row[name] = value if name == "compresscodec" else int(value)
    return row
