"""tools/rehearsal: the parts that need no tree: steps, settings, metrics, claims."""

from __future__ import annotations

import io

import pytest

from batchval.core import claims
from tests.support import proxy as batches
from tools.rehearsal import plan, steps
from tools.rehearsal.running_gate import metric_in
from tools.rehearsal.settings import lost_values
from tools.rehearsal.steps import StepFailed


def test_the_first_step_that_fails_ends_the_run() -> None:
    def failing() -> str:
        raise StepFailed("1 record, expected 2")

    begun: list[str] = []
    lines = steps.carry_out([("a", lambda: "done"), ("b", failing), ("c", str)], begun.append)
    assert next(lines).split() == ["OK", "0.0", "s", "a", "done"]
    with pytest.raises(StepFailed, match="1 record, expected 2") as raised:
        next(lines)
    assert raised.value.__notes__ == ["step b, after 0 s"]
    assert begun == ["a", "b"]


def test_settings_that_are_lost() -> None:
    old = {
        "mode": "enforce",
        "limits": {"threads": 4, "idle": 1},
        "listeners": [{"name": "edge", "tls": None}],
    }
    assert lost_values(old, old | {"more": 1}) == []
    new = {"mode": "observe", "limits": {"threads": 4}, "listeners": [{"name": "edge", "tls": {}}]}
    assert lost_values(old, new) == [
        "mode was 'enforce', is 'observe'",
        "limits.idle is gone",
        "listeners[0].tls was None, is {}",
    ]
    assert lost_values([1], [1, 2], "listeners") == ["listeners was [1], is [1, 2]"]


def test_a_metric_is_the_sum_over_its_labels() -> None:
    text = '# HELP a_total Of a.\na_total{rule="1"} 2.0\na_total{rule="2"} 3.0\n# HELP b_total Of b.\nab_total 7.0\n'
    assert metric_in(text, "a_total") == 5
    assert metric_in(text, "b_total") == 0
    with pytest.raises(StepFailed, match="lack c_total"):
        metric_in(text, "c_total")


def test_tags_are_those_of_the_core() -> None:
    plain = [batches.batch(b"one" * size, b"two" * size, codec=batches.ZSTD) for size in (50, 60)]
    claimed = io.BytesIO()
    wanted = []
    for batch in plain:
        true = claims.compute(batch)
        assert true is not None
        claimed.write(claims.attach(batch, true))
        wanted.append(claims.to_tag(true[:3], int.from_bytes(batch[17:21], "big")))
    assert list(plan.tags_of(claimed.getvalue(), plain)) == wanted
    with pytest.raises(StepFailed, match="has magic 2, expected 3"):
        list(plan.tags_of(b"".join(plain), plain))
