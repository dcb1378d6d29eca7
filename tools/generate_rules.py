"""Write what follows from the rules, the reasons and the layout of a batch.

    python tools/generate_rules.py            write the files
    python tools/generate_rules.py --check    name the files that are not up to date, exit code 1

| written by hand | from there |
|---|---|
| batchval/rule_texts.py | the members of Rule in batchval/rules.py, core/format/rule_numbers.pxd |
| core/format/reasons.py | core/format/reasons.pxd |
| core/format/layout.pxd, core/stages/claims_block.pxd | core/format/layout.py |
| batchval/rule_texts.py, batchval/kafka_versions.py | docs/reference/rules.md |

Nothing that is written here is read here, and no compiled module: one run is enough, before the
build.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "batchval"
FORMAT = PACKAGE / "core" / "format"
sys.path.insert(0, str(ROOT))

from batchval.core.format.reasons import REASONS  # noqa: E402
from batchval.kafka_versions import (  # noqa: E402
    DEFAULT_KAFKA_VERSION,
    KAFKA_VERSIONS,
    RELEASES,
    changes_of,
    releases_of,
)
from batchval.rule_texts import RULE_TEXTS, RuleText  # noqa: E402
from batchval.rules import FAMILY_STARTS, number_of  # noqa: E402
from bench.pages.text import table  # noqa: E402
from tools import generated_files  # noqa: E402

COMMAND = "python tools/generate_rules.py"
FAMILY_OF = {name: name[0] if name[0] in FAMILY_STARTS else "" for name in RULE_TEXTS}
IDS = {
    family: [name for name in RULE_TEXTS if FAMILY_OF[name] == family]
    for family in ("", *FAMILY_STARTS)
}
EXTRAS = IDS["S"]


def _notice(source: str) -> str:
    return f"Written by ``{COMMAND}`` from {source}: do not edit it by hand."


# ---- the members of Rule -------------------------------------------------------------------------

_START, _END = "    # fmt: off\n", "    # fmt: on\n"


def _member(name: str) -> str:
    return name if FAMILY_OF[name] else RULE_TEXTS[name].slug.upper().replace("-", "_")


def _fact(name: str) -> str:
    """Return the lines of one member, within 100 columns."""
    text = RULE_TEXTS[name]
    code = text.error_code and f"_E.{text.error_code.name}"
    facts = f'"{name}", "{text.slug}", {code}, "{text.profiles}",'
    if len(line := f'    {_member(name)} = _Fact({facts} "{text.summary}")') <= 100:
        return f"{line}\n"
    pieces = textwrap.wrap(text.summary, 88, drop_whitespace=False)
    words = "\n        ".join(f'"{piece}"' for piece in pieces)
    return f"    {_member(name)} = _Fact(\n        {facts}\n        {words},\n    )\n"


def rule_members() -> str:
    """Return batchval/rules.py with its members renewed."""
    head, start, rest = (PACKAGE / "rules.py").read_text("utf-8").partition(_START)
    _, end, tail = rest.partition(_END)
    if not end:
        raise SystemExit("batchval/rules.py: no lines '# fmt: off' and '# fmt: on'")
    blocks = ("".join(map(_fact, names)) for names in IDS.values())
    notice = f"    # {_notice('rule_texts.py')}\n"
    return head + start + notice + "\n".join(blocks) + end + tail


# ---- native numbers ------------------------------------------------------------------------------

_STARTS = {"S": ("EXTRA", "S1"), "L": ("FINDING", "L1"), "R": ("RECORD_RULE", "R1")}


def _numbers() -> Iterable[str]:
    for family, names in IDS.items():
        if family:
            name, first = _STARTS[family]
            yield f"{name} = {FAMILY_STARTS[family]}  # {first} is {number_of(first)}"
        yield from (f"{_member(name)} = {number_of(name)}" for name in names)
    yield f"LAST_EXTRA = {EXTRAS[-1]} - EXTRA"


def _codes_of_extras() -> Iterable[str]:
    """Yield the body of code_of_extra: INVALID_RECORD comes last, where no other code applies."""
    for name in EXTRAS:
        code = RULE_TEXTS[name].error_code
        assert code is not None, name
        if code.name != "INVALID_RECORD":
            yield f"    if rule == {name}:\n        return {code.name}\n"
    yield "    return INVALID_RECORD\n"


def rule_numbers() -> str:
    """Return core/format/rule_numbers.pxd."""
    codes = sorted({text.error_code for text in RULE_TEXTS.values() if text.error_code is not None})
    against = [f"{name}_BIT" for name in EXTRAS if RULE_TEXTS[name].against_claims]
    return "".join(
        [
            '"""The numbers of rules and of their error codes, and the bits of extras.\n\n',
            f'{_notice("batchval/rule_texts.py")}\n"""\n\n',
            "from libc.stdint cimport int16_t\n\n",
            "cdef enum:  # batchval.errors.ErrorCode\n",
            *(f"    {code.name} = {int(code)}\n" for code in codes),
            "\ncdef enum:  # batchval.rules.Rule.number\n",
            *(f"    {line}\n" for line in _numbers()),
            "\ncdef enum:  # Verdict.found and reports, AppendContext.refuse: ",
            "one bit for each extra\n",
            *(f"    {name}_BIT = 1 << {n}\n" for n, name in enumerate(EXTRAS, 1)),
            "    # extras that no records under honest claims meet\n",
            f"    AGAINST_CLAIMS = {' | '.join(against)}\n",
            "\n\ncdef inline int16_t code_of_extra(int rule) noexcept nogil:\n",
            *_codes_of_extras(),
        ]
    )


def reason_numbers() -> str:
    """Return core/format/reasons.pxd."""
    names = "".join(f"    {name}\n" for name in REASONS)
    about = f"Numbers of the sentences in reasons.py, in their order.\n\n{_notice('reasons.py')}\n"
    return f'"""{about}"""\n\ncdef enum:\n{names}'


# ---- positions for Python ------------------------------------------------------------------------

_CONSTANT = re.compile(r"^    ([A-Z][A-Z0-9_]*) = (-?[0-9]+)\b", re.MULTILINE)
#: The names of layout.py, in groups with a comment; the first group is a batch's fields.
_POSITIONS = {
    "": (
        *("BASE_OFFSET", "BATCH_LENGTH", "PARTITION_LEADER_EPOCH", "MAGIC", "CRC", "ATTRIBUTES"),
        *("LAST_OFFSET_DELTA", "BASE_TIMESTAMP", "MAX_TIMESTAMP", "PRODUCER_ID"),
        *("PRODUCER_EPOCH", "BASE_SEQUENCE", "RECORDS_COUNT", "RECORDS"),
    ),
    "base_offset and batch_length, which batch_length does not count": ("LOG_OVERHEAD",),
    "Of a message of magic 0 or 1, whose checksum covers what starts at its magic.": (
        *("LEGACY_CRC", "LEGACY_MAGIC"),
    ),
    "The least size field of a message (LegacyRecord.RECORD_OVERHEAD_V0).": ("LEGACY_MIN_SIZE",),
    "In the low byte of the attributes, which stands at ATTRIBUTES + 1.": ("CODEC_MASK",),
    "A batch with claims in its header, and where its records start.": (
        *("CLAIMS_MAGIC", "CLAIMED_RECORDS"),
    ),
}
_LAYOUT = '''\
"""Positions of the fields of a record batch, for Python modules.

    base_offset:8 batch_length:4 partition_leader_epoch:4 magic:1 crc:4 | attributes:2
    last_offset_delta:4 base_timestamp:8 max_timestamp:8 producer_id:8 producer_epoch:2
    base_sequence:4 records_count:4 records...

{notice}
No other module declares these positions (tests/repo/contract/test_layout.py).
"""

from __future__ import annotations

from typing import Final

__all__ = [
{exported}]

'''


def positions() -> str:
    """Return core/format/layout.py."""
    sources = (FORMAT / "layout.pxd", PACKAGE / "core" / "stages" / "claims_block.pxd")
    native = dict(_CONSTANT.findall("".join(path.read_text("utf-8") for path in sources)))
    names = [name for group in _POSITIONS.values() for name in group]
    notice = _notice("layout.pxd and core/stages/claims_block.pxd").replace(": do", ":\ndo")
    exported = "".join(f'    "{name}",\n' for name in sorted(names))
    groups = (
        (f"#: {comment}\n" if comment else "")
        + "".join(f"{name}: Final = {native[name]}\n" for name in group)
        for comment, group in _POSITIONS.items()
    )
    return _LAYOUT.format(notice=notice, exported=exported) + "\n".join(groups)


# ---- the page ------------------------------------------------------------------------------------

HEAD = """\
# The rules

Generated from `batchval/rule_texts.py` and `batchval/kafka_versions.py` by
`python tools/generate_rules.py`; a test keeps it up to date.
`batchval rule 14` explains a rule: why it exists, and what to do about a finding.

Every refusal, report and finding is a member of `batchval.Rule`, by these ids and slugs: in
results, on the command line, in JSON, as a folder name in `fixtures/golden/` (rules 1 to 47 except
17 and 20, S and L1 to L6). The *number* is what columns hold.
Profiles: `produce` is what a broker checks in a Produce request, `log` is a segment at rest.
"""


def _range(family: str) -> str:
    return f"{IDS[family][0]} to {IDS[family][-1]}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}"


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
        "Kafka answers with -1 is refused with every setting. Under honest claims no records meet\n"
        f"{_listed(name for name in EXTRAS if RULE_TEXTS[name].against_claims)}.",
        "",
    ),
    (
        f"Findings at rest: {_range('L')}",
        "What only a whole log shows: its segments, and Kafka's other files. The code is the one\n"
        "that a log's reader would meet. The section below says what a broker does about it.\n"
        "L7 is also the answer to a batch of magic 3 whose claims were verified and are not true.\n"
        "Claims in a payload that lie are L7 only with `--trust-claims` and for `claims verify`.",
        "",
    ),
    (
        "Record rules",
        "What a topic's owner asks of single records (`TopicPolicy.record_rules`). They are asked\n"
        "after all other rules but 40, in both modes: a batch that Kafka would refuse is refused\n"
        "with Kafka's rule. The batch's rule is that of its first record at fault; of one record\n"
        "the rule with the lowest number counts. Control batches, and appends of followers and\n"
        "Raft leaders, are not asked.",
        "",
    ),
)


def _rows(names: Iterable[str], where: str) -> str:
    """Return the table of a family. ``where``: the heading of Kafka's part, or an empty string."""
    rows = []
    for name in names:
        text = RULE_TEXTS[name]
        cells = [str(number_of(name)), name, f"`{text.slug}`", text.kafka if where else ""]
        rows.append([*cells, _code(text), _PROFILES[text.profiles], text.summary])
    return table(["number", "id", "slug", where, "error code", "profiles", "meaning"], rows)


_PROFILES = {"p": "produce", "l": "log", "pl": "log, produce"}


def _code(text: RuleText) -> str:
    code = text.error_code
    return "none" if code is None else f"{code.name} {int(code)}"


BROKERS = """
### What a broker does about such damage

Apache Kafka 4.4.0, by its source and by starts of a broker on damaged log folders
(`tests/system/interop/test_broker_on_damage.py` repeats them). Rules that are not listed: a broker
does not notice the damage, and serves what it finds. `fixtures/damaged/` has a damaged log for each
rule from L8 on.

"""

RELEASES_HEAD = f"""
## Releases of Kafka

Kafka changes validation in patch releases. `LogValidator(kafka_version="4.2.1")`,
`--kafka-version 4.2.1` of `batchval check`, `audit` and `claims verify`, `kafkaVersion` in Spark
and the gate's `validation.kafka_version` take any release from {RELEASES[0].first} on; the default
is {DEFAULT_KAFKA_VERSION}. `4.2` stands for its newest patch release. A release that is newer than
this table takes the newest row, and a warning says so. `batchval rule --versions` prints the first
table.

A row is named by the first release that has it.

"""

COLUMNS_HEAD = """
The columns hold all that differs between the rows. In both modes every other rule is the same.
`strict` accepts a subset of what the chosen release accepts.

"""


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return (
        "2^63 - 1" if value == 2**63 - 1 else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _releases() -> str:
    rows = [
        [name, ", ".join(releases_of(name)), ", ".join(f"`{one}`" for one in changes_of(name))]
        for name in KAFKA_VERSIONS
    ]
    return table(["row", "releases", "columns that differ from the row above"], rows)


def _columns() -> str:
    versions = list(KAFKA_VERSIONS.values())
    rows = []
    for column in fields(versions[0]):
        if column.name != "name":
            cells = [_cell(getattr(one, column.name)) for one in versions]
            rows.append([f"`{column.name}`", *cells, column.metadata["meaning"]])
    return table(["column", *(one.name for one in versions), "meaning"], rows)


def page() -> str:
    """Return docs/reference/rules.md."""
    parts = [HEAD]
    for (title, text, where), (family, names) in zip(FAMILIES, IDS.items(), strict=True):
        parts += [f"\n## {title}\n\n{text}\n\n", _rows(names, where), "\n"]
        if family == "L":
            answers = [[name, what] for name in names if (what := RULE_TEXTS[name].broker)]
            parts += [BROKERS, table(["id", "what a broker does"], answers), "\n"]
    parts += [RELEASES_HEAD, _releases(), "\n", COLUMNS_HEAD, _columns(), "\n"]
    return "".join(parts)


# ---- all files -----------------------------------------------------------------------------------

FILES = {
    PACKAGE / "rules.py": rule_members,
    FORMAT / "rule_numbers.pxd": rule_numbers,
    FORMAT / "reasons.pxd": reason_numbers,
    FORMAT / "layout.py": positions,
    ROOT / "docs" / "reference" / "rules.md": page,
}


def generated() -> dict[Path, str]:
    """Return every generated file and its text."""
    return {path: text() for path, text in FILES.items()}


if __name__ == "__main__":
    sys.exit(generated_files.run(generated()))
