"""The examples of docs/reference/library/producer.md run as they stand, against a real broker."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.producer.test_broker import read_all

pytestmark = pytest.mark.jvm

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "library" / "producer.md"


def test_the_examples(broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    asyncio.run(asyncio.wait_for(names["main"]([broker.bootstrap]), 60))
    assert capsys.readouterr().out == "stored at 0\nacknowledged\n3 records, stamps [11, 12, 13]\n"
    asyncio.run(asyncio.wait_for(names["transfer"]([broker.bootstrap]), 60))
    values = [value for _, _, _, value, _, _ in read_all(broker, "docs", committed=True)]
    assert sorted(values, key=lambda value: value or b"") == [
        b"a", b"another", b"b", b"c", b"in a transaction", b"value"
    ]  # fmt: skip
