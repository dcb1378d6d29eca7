"""``python -m demo.gate`` keeps its promises, and says so where it does not."""

from __future__ import annotations

import pytest

from batchval.policy import TopicPolicy
from batchval.rules import Rule
from demo import gate
from demo.attempts import attempts


def test_it_ends_by_itself_and_every_bad_batch_was_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert gate.main(["--seconds", "1"]) == 0
    out = capsys.readouterr().out
    assert "bad batches refused by 13 rules" in out
    for attempt in attempts(gate.SEGMENTS)[0]:
        if attempt.rule is not None:
            slug = next(rule.slug for rule in Rule if rule.id == attempt.rule)
            assert slug in out


def test_an_accepted_batch_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, now = attempts(gate.SEGMENTS)
    innocent = real[0]._replace(what="not bad at all", rule="14")
    monkeypatch.setattr(gate, "attempts", lambda _: ([innocent], now))
    assert gate.main(["--seconds", "0.2"]) == 1
    assert "The demo failed" in capsys.readouterr().out


def test_each_policy_has_its_topic() -> None:
    assert gate.topic_of(TopicPolicy()) == "demo-plain"
    assert gate.topic_of(TopicPolicy(max_message_bytes=1)) == "demo-max-message-bytes"
