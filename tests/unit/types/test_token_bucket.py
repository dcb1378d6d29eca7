"""A bound on how often something may happen."""

from __future__ import annotations

from batchval.token_bucket import TokenBucket


def test_tokens_come_back_with_time_up_to_the_most() -> None:
    now = [0.0]
    bucket = TokenBucket(10.0, 3, lambda: now[0])

    def taken() -> int:
        return [bucket.take() for _ in range(10)].count(True)

    assert taken() == 3
    assert taken() == 0
    now[0] += 0.25
    assert taken() == 2
    now[0] += 0.0625  # half a token was left
    assert taken() == 1
    now[0] += 1e9
    assert taken() == 3


def test_a_bucket_that_holds_nothing_gives_nothing() -> None:
    now = [0.0]
    bucket = TokenBucket(0, 0, lambda: now[0])
    now[0] += 1e9
    assert not bucket.take()
