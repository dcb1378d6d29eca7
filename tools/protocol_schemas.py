"""Write batchval/protocol/error_schemas.py: the messages of every API that a gate may deny.

``batchval.protocol.field_schema`` has the grammar and reads it.
"""

from __future__ import annotations

import textwrap

from tools.kafka_definitions import LAST, Definition, Definitions, Field, Struct, Versions

#: APIs that no gate denies: without them clients cannot work, or the answer cannot hold an error.
NEVER_DENIED = frozenset({"Metadata", "SaslHandshake", "ApiVersions", "SaslAuthenticate"})
#: Whose answers ``batchval.protocol.walkers.produce_answer`` makes.
_ELSEWHERE = frozenset({"Produce"})
_OLDEST = 0
_WIDTH = 100

_HEAD = '''"""The requests and responses of every API that a gate may deny, from version 0 on.

Generated from Kafka {version}'s message definitions by tools/generate_protocol.py; do not edit.
``batchval.protocol.field_schema`` has the grammar.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MESSAGES"]

#: The name of each message, and its fields.
MESSAGES: Final = """
'''


def file(definitions: Definitions) -> str:
    """Return the text of the file."""
    text = _HEAD.format(version=definitions.version)
    for api in definitions.apis:
        name = api.name.removesuffix("Request")
        if "broker" in api.listeners and name not in NEVER_DENIED | _ELSEWHERE:
            for kind in ("Request", "Response"):
                text += _message(definitions.load(f"{name}{kind}", _OLDEST))
    return text + '"""\n'


def _message(message: Definition) -> str:
    lines = textwrap.wrap(
        f"{message.name} {_struct(message.root)}",
        _WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def _struct(struct: Struct) -> str:
    return " ".join(_field(field, struct.span) for field in struct.fields)


def _field(field: Field, span: Versions) -> str:
    text = f"{field.kafka_name}:{'[]' if field.array else ''}{'struct' if field.struct else field.type}"
    if field.versions != span:
        text += f"@{_span(field.versions)}"
    if field.nullable is not None:
        text += "?" if field.nullable == field.versions else f"?{_span(field.nullable)}"
    if field.tagged is not None:
        text += f"#{field.tag}"
        if field.tagged != field.versions:
            text += f"+{_span(field.tagged)}"
    if field.default not in (None, "", "0", "false"):
        text += f"={field.default}"
    return f"{text} {{ {_struct(field.struct)} }}" if field.struct else text


def _span(versions: Versions) -> str:
    last = "" if versions.last == LAST else str(versions.last)
    return f"{versions.first}-{last}"
