"""The table of reasons: every reason that the code has is in it, and the page shows it."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from typing import get_args

from batchval.proxy.kit.end_reasons import CLIENT, REASONS, explained, reason_of
from batchval.proxy.tls import handshakes
from tests.support.sources import ROOT

#: methods, and a class, whose first argument is a reason
_ENDS = {"abort", "end", "end_when_taken", "refuse", "_close", "_note_end", "End", "AnswerFault"}
#: functions that return a reason, alone or as the first of a tuple
_NAMES = {"why"}
_RETURNS = {"why_broker_left", "why_not_read", "_why_not"}


def text_of(node: ast.AST | None) -> Iterator[str]:
    """Yield the constants that an expression may have as its value, or first in a tuple."""
    if isinstance(node, ast.Tuple):
        node = node.elts[0]
    if isinstance(node, ast.IfExp):
        yield from text_of(node.body)
        yield from text_of(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def called(node: ast.Call) -> str:
    """Return the name of what is called, without that of its object."""
    name = node.func
    return name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")


def reasons_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and called(node) in _ENDS:
            yield from text_of(node.args[0] if node.args else None)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in _NAMES:
                yield from text_of(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in _RETURNS:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return):
                    yield from text_of(inner.value)


def peers() -> set[str]:
    """Return what the splitter takes a stream for that is not Kafka's."""
    source = (ROOT / "batchval/protocol/frames.pyx").read_text("utf-8")
    guessed = source.split("cdef object guessed")[1].split("\n\n\n")[0]
    return set(re.findall(r'return "([A-Z]+)"', guessed))


def test_every_reason_of_the_code_is_in_the_table_and_no_other() -> None:
    proxy = ROOT / "batchval/proxy"
    modules = (*(proxy / "session").glob("*.py"), proxy / "life/listener_server.py")
    found = {
        reason
        for path in modules
        for reason in reasons_in(path.read_text("utf-8"))
        if re.fullmatch(r"[a-z0-9_]+", reason)
    }
    found |= {f"frame_{peer.lower()}" for peer in peers()}
    found |= {f"handshake_{reason}" for reason in (*get_args(handshakes.HandshakeFailure), "ended")}
    assert found | {CLIENT} == set(REASONS)


def test_no_module_ends_sessions_that_is_not_looked_at() -> None:
    # A folder with a reason of its own belongs in the test above. (``refuse`` of record_stage is
    # another method.)
    for path in (ROOT / "batchval/proxy").rglob("*.py"):
        for reason in reasons_in(path.read_text("utf-8")):
            if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", reason) and path.stem != "record_stage":
                assert reason in REASONS, path


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs/reference/proxy/connections.md").read_text("utf-8")
    rows = [
        tuple(cell.strip() for cell in line.split("|")[1:-1])
        for line in page.splitlines()
        if line.startswith("|")
    ]
    assert rows[2:] == [
        (f"`{word}`", logging.getLevelName(one.level).lower(), one.meaning, one.advice)
        for word, one in REASONS.items()
    ]


def test_ends_without_a_fault_cause_no_warnings() -> None:
    quiet = {word for word, one in REASONS.items() if one.level < logging.WARNING}
    assert quiet == {
        CLIENT,
        "max_age",
        "idle",
        "drain",
        "upstream_closed",
        "client_gone",
        "handshake_client",
        "handshake_ended",
    }


def test_each_is_one_sentence() -> None:
    for word, one in REASONS.items():
        assert re.fullmatch(r"[A-Z`a-z][^.]*(\.[a-z_\[][^.]*)*\.", one.meaning), word
        assert one.advice.endswith("."), word
        assert "|" not in one.meaning + one.advice
    assert "frame_http: The client spoke HTTP." in explained()
    assert reason_of("of tomorrow").level == logging.WARNING
