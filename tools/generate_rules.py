"""Write docs/reference/rules.md from batchval/rules.py, rule_texts.py and kafka_versions.py.

    python tools/generate_rules.py            write the file
    python tools/generate_rules.py --check    exit code 1 if it is not up to date

batchval/rule_texts.py has the reason of each rule and the advice; ``batchval rule`` prints both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference" / "rules.md"
sys.path.insert(0, str(ROOT))

from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS  # noqa: E402
from batchval.rule_texts import RULE_TEXTS  # noqa: E402
from batchval.rules import FINDING_IDS, RECORD_RULE_IDS, Rule  # noqa: E402

HEAD = """\
# The rules

Generated from `batchval/rules.py`, `batchval/rule_texts.py` and `batchval/kafka_versions.py`
by `python tools/generate_rules.py`; a test keeps it up to date.
`batchval rule 14` explains a rule: why it exists, and what to do about a finding.

Every refusal, report and finding is a member of `batchval.Rule`, by these ids and slugs: in
results, on the command line, in JSON, as a folder name in `fixtures/golden/` (rules 1 to 47 except
17 and 20, S and L1 to L6). The *number* is what columns hold.
Profiles: `produce` is what a broker checks in a Produce request, `log` is a segment at rest.
"""

FAMILIES = (
    (
        "Kafka's own: 1 to 47",
        "In the order in which a broker of Apache Kafka 4.4.0 asks: the batch iterator, the\n"
        "produce request (5–8), the batch loop before the append (9–17), LogValidator (18–39),\n"
        "the size of what was rebuilt (40), and what follows before the log is written (41–47).\n"
        "The first refusal is the answer. Not every origin is asked all of them: rules 5–8 are\n"
        "for CLIENT; rules 18–40 for CLIENT and COORDINATOR; rule 41 for REPLICATION and\n"
        "RAFT_LEADER.\n"
        "Rules 41 to 47 are answered as by an empty log that starts at `first_offset`: what a log\n"
        "remembers of producers and transactions is not known here.\n"
        "In a produce request, rules 2, 3 and 4 refuse all partitions if one has such a first\n"
        "batch (`LogValidator.check_produce_request`).\n"
        "Refused records of one batch are collected (32, 33, 35–37); more than one reason is 38.\n"
        "Where Kafka answers UNKNOWN_SERVER_ERROR (-1), `strict` answers with the extra that names the cause.\n"
        "Rules 1 and 11 refuse nothing: bytes are trimmed, batches are skipped.",
        "Kafka's class and method",
    ),
    (
        "Extras of strict mode",
        "For batches that Kafka would accept, or would answer with -1. Each can be set to `refuse`\n"
        "or `report`; the default is `refuse`, in a gate `report`. S8 always refuses. A batch that\n"
        "Kafka answers with -1 is refused with every setting.",
        "",
    ),
    (
        f"Findings at rest: {FINDING_IDS}",
        "What only a whole log shows: its segments, and Kafka's other files. The code is the one\n"
        "that a log's reader would meet. The section below says what a broker does about it.\n"
        "L7 is also the answer to a batch of magic 3 whose claims were verified and are not true.\n"
        "Claims in a payload that lie are L7 only with `--trust-claims` and for `claims verify`.",
        "",
    ),
    (
        f"Record rules: {RECORD_RULE_IDS}",
        "What a topic's owner asks of single records (`TopicPolicy.record_rules`). They are asked\n"
        "after all other rules but 40, in both modes: a batch that Kafka would refuse is refused\n"
        "with Kafka's rule. The batch's rule is that of its first record at fault; of one record\n"
        "the rule with the lowest number counts. Control batches, and appends of followers and\n"
        "Raft leaders, are not asked.",
        "",
    ),
)


def _rows(rules: Iterable[Rule], where: str) -> Iterable[str]:
    heads = [
        "number",
        "id",
        "slug",
        *([where] if where else []),
        "error code",
        "profiles",
        "meaning",
    ]
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for rule in rules:
        code = (
            f"{rule.error_code.name} {int(rule.error_code)}"
            if rule.error_code is not None
            else "none"
        )
        cells = [
            str(rule.number),
            rule.id,
            f"`{rule.slug}`",
            *([RULE_TEXTS[rule.id].kafka] if where else []),
        ]
        cells += [code, ", ".join(sorted(rule.profiles)), rule.summary]
        yield "| " + " | ".join(cells) + " |"


BROKERS = """
### What a broker does about such damage

Apache Kafka 4.4.0, by its source and by starts of a broker on damaged log folders
(`tests/interop/test_broker_on_damage.py` repeats them). Rules that are not listed: a broker does
not notice the damage, and serves what it finds. `fixtures/damaged/` has a damaged log for each rule
from L8 on.

| id | what a broker does |
|---|---|
"""

VERSIONS = f"""
## Versions of Kafka

`LogValidator(kafka_version="3.9")`, `--kafka-version 3.9` of `batchval check`, `audit` and
`claims verify`, `kafkaVersion` in Spark and the gate's `validation.kafka_version` choose the
version; the default is {DEFAULT_KAFKA_VERSION}. The table holds all that differs between versions.
In both modes every other rule is the same. `strict` accepts a subset of what the chosen version
accepts.

"""


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return (
        "2^63 - 1" if value == 2**63 - 1 else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _versions() -> Iterable[str]:
    rows = list(KAFKA_VERSIONS.values())
    yield "| column | " + " | ".join(row.name for row in rows) + " | meaning |"
    yield "|" + "---|" * (len(rows) + 2)
    for column in fields(rows[0]):
        if column.name != "name":
            cells = " | ".join(_cell(getattr(row, column.name)) for row in rows)
            yield f"| `{column.name}` | {cells} | {column.metadata['meaning']} |"


def generated() -> str:
    """Return the whole page."""
    families: dict[str, list[Rule]] = {"": [], "S": [], "L": [], "R": []}
    for rule in Rule:
        families[rule.id[0] if rule.id[0] in families else ""].append(rule)
    parts = [HEAD]
    for (title, text, where), (letter, rules) in zip(FAMILIES, families.items(), strict=True):
        parts += [f"\n## {title}\n\n{text}\n\n", "\n".join(_rows(rules, where)), "\n"]
        if letter == "L":
            parts.append(BROKERS)
            parts += [
                f"| {rule.id} | {broker} |\n"
                for rule in rules
                if (broker := RULE_TEXTS[rule.id].broker)
            ]
    parts += [VERSIONS, "\n".join(_versions()), "\n"]
    return "".join(parts)


def main(arguments: list[str]) -> int:
    page = generated()
    if "--check" in arguments:
        return 0 if TARGET.exists() and TARGET.read_text("utf-8") == page else 1
    TARGET.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
