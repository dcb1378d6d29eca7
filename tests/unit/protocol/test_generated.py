"""The checked-in files are what the generator writes from Kafka's own definitions, and it would
notice if not.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fixtures import needs_kafka
from tools import generate_protocol, kafka_definitions, protocol_layouts

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def definitions() -> Any:
    needs_kafka()
    return kafka_definitions.Definitions.in_jar(kafka_definitions.jar())


def test_the_files_are_what_the_generator_writes(definitions: Any) -> None:
    assert definitions.version == "4.4.0"
    files = generate_protocol.generated(definitions)
    assert len(files) == len(generate_protocol.APIS) + 8
    assert [path.name for path, text in files.items() if path.read_text("utf-8") != text] == []
    modules = {path.name for path in (generate_protocol.TARGET / "messages").glob("*.py")}
    assert modules == {path.name for path in files if path.parent.name == "messages"}


def test_every_api_of_kafka_is_in_the_table(definitions: Any) -> None:
    from batchval.protocol.apis import APIS

    assert {api.key for api in definitions.apis} == APIS.keys()
    assert {api.name for api in APIS.values() if api.addresses_from is not None} >= {
        "Metadata", "FindCoordinator", "DescribeCluster", "Produce", "Fetch", "ShareFetch", "ShareAcknowledge",
        "DescribeQuorum",
    }  # fmt: skip


def test_a_definition_that_changed_is_noticed(definitions: Any) -> None:
    raw = definitions._files["HeartbeatRequest"]
    raw["fields"].append({"name": "Pulse", "type": "int32", "versions": "4+"})
    try:
        files = generate_protocol.generated(definitions)
    finally:
        raw["fields"].pop()
    changed = [path.name for path, text in files.items() if path.read_text("utf-8") != text]
    assert changed == ["error_schemas.py", "heartbeat.py"]


def test_walkers_of_fetch_answers_follow_the_definition(definitions: Any) -> None:
    raw = definitions._files["FetchResponse"]
    partition = raw["fields"][3]["fields"][2]["fields"]
    assert [field["name"] for field in partition[:2]] == ["PartitionIndex", "ErrorCode"]
    partition.insert(1, {"name": "Pulse", "type": "int64", "versions": "9+"})
    try:
        text, old = protocol_layouts.file(definitions), protocol_layouts.raised(definitions)
        partition[1]["type"] = "string"
        with pytest.raises(SystemExit, match="partition: a field that no walker"):
            protocol_layouts.file(definitions)
    finally:
        del partition[1]
    assert "    if version >= 9:\n        skip(c, 8)\n    p.error_code = read_int16(c)" in text
    assert "(BYTES, 38)" in text
    assert "            r.int64()  # pulse\n            error_code = r.int16()" in old
    assert "(BYTES, 38)" not in protocol_layouts.file(definitions)


def test_a_fetch_answer_with_fields_after_its_topics_has_no_walker(definitions: Any) -> None:
    fields = definitions._files["FetchResponse"]["fields"]
    fields.append({"name": "Pulse", "type": "int32", "versions": "12+"})
    try:
        with pytest.raises(SystemExit, match="FetchResponse has 2 parts, and 1 have names"):
            protocol_layouts.file(definitions)
    finally:
        fields.pop()
