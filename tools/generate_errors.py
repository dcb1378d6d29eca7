"""Write the generated part of batchval/errors.py from Kafka's own Errors.

    python tools/generate_errors.py            write the file
    python tools/generate_errors.py --check    exit code 1 if it is not up to date

The numbers, names and what is retriable come from org.apache.kafka.common.protocol.Errors of the
oracle's kafka-clients jar (``errors`` command of tests/evidence/conformance/oracle).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "batchval" / "errors.py"
MARK = "# generated from kafka-clients {version}\n"
VERSION = "4.4.0"
PROPERTY = '''
    @property
    def retriable(self) -> bool:
        """Return whether the same request may succeed later (Kafka's RetriableException)."""
        return self in RETRIABLE
'''

sys.path.insert(0, str(ROOT))

from tools import generated_files  # noqa: E402


def generated(errors: list[dict[str, Any]], version: str = VERSION) -> str:
    """Return the generated part of the file, from the mark on."""
    errors = sorted(errors, key=lambda error: error["code"])
    lines = [
        MARK.format(version=version),
        "class ErrorCode(IntEnum):\n",
        '    """The error codes of Kafka\'s protocol."""\n\n',
        *(f"    {error['name']} = {error['code']}\n" for error in errors),
        PROPERTY,
        "\n\n#: The codes that a client may answer with the same request again.\n",
        "RETRIABLE: frozenset[ErrorCode] = frozenset(\n    {\n",
        *(f"        ErrorCode.{error['name']},\n" for error in errors if error["retriable"]),
        "    }\n)\n",
    ]
    return "".join(lines)


def renewed(text: str, errors: list[dict[str, Any]]) -> str:
    """Return the file's text with its generated part renewed."""
    head, mark, _ = text.partition(MARK.partition("{")[0])
    if not mark:
        raise SystemExit(f"{TARGET}: no line '{MARK.partition('{')[0]}...'")
    return head + generated(errors)


def main() -> int:
    from tests.evidence.conformance import oracle

    errors = [json.loads(line) for line in oracle.run("errors").splitlines()]
    return generated_files.run({TARGET: renewed(TARGET.read_text("utf-8"), errors)})


if __name__ == "__main__":
    sys.exit(main())
