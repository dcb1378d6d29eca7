"""The upper bound of the share of lies, seeds and rates."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest

from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.trust import TrustCounts, checked_rate, highest_share, sample_key
from batchval.types import MAX_SEED

LABEL = "with 95 % confidence at most"


def at_most(lying: int, verified: int, share: float) -> float:
    """Return P(X <= lying) of a binomial distribution, term by term."""
    return math.fsum(
        math.comb(verified, k) * share**k * (1 - share) ** (verified - k) for k in range(lying + 1)
    )


@pytest.mark.parametrize("verified", [1, 2, 10, 59, 459, 10_000, 10**9])
def test_without_a_lie_the_bound_is_the_formula_of_the_documentation(verified: int) -> None:
    assert highest_share(0, verified) == pytest.approx(1 - 0.05 ** (1 / verified), rel=1e-6)


@pytest.mark.parametrize(
    ("lying", "verified"),
    [
        (1, 2),
        (1, 10),
        (9, 10),
        (2, 20),
        (5, 100),
        (50, 100),
        (99, 100),
        (1, 500),
        (250, 500),
        (3, 1000),
        (999, 1000),
    ],
)
def test_the_bound_is_where_so_few_lies_have_a_probability_of_5_percent(
    lying: int, verified: int
) -> None:
    assert at_most(lying, verified, highest_share(lying, verified)) == pytest.approx(0.05, rel=1e-9)
    assert at_most(lying, verified, highest_share(lying, verified, 0.99)) == pytest.approx(
        0.01, rel=1e-9
    )


def test_published_values() -> None:
    """Compare with one-sided 95 % limits of Clopper and Pearson."""
    assert highest_share(1, 10) == pytest.approx(0.3942, abs=1e-4)
    assert highest_share(2, 20) == pytest.approx(0.2826, abs=1e-4)
    assert highest_share(0, 20) == pytest.approx(0.1391, abs=1e-4)


@pytest.mark.parametrize("verified", [10**4, 10**6, 10**8])
def test_many_batches_come_near_the_normal_distribution(verified: int) -> None:
    lying = verified // 5
    normal = 0.2 + 1.6449 * math.sqrt(0.2 * 0.8 / verified)
    assert highest_share(lying, verified) == pytest.approx(normal, rel=0.002)
    assert highest_share(verified - 1, verified) < 1 == highest_share(verified, verified)


def test_counts_that_cannot_be_are_refused() -> None:
    for lying, verified in ((0, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match=f"lying is {lying} and verified is {verified}"):
            highest_share(lying, verified)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (TrustCounts(), "figures: no batch has claims that can be trusted"),
        (
            TrustCounts(1234),
            "figures: 1,234 by claims, 0 verified, 0 false: the share of false claims is unknown",
        ),
        (
            TrustCounts(99_000, 1000),
            f"figures: 99,000 by claims, 1,000 verified, 0 false: "
            f"{LABEL} 0.3 % of the claims are false",
        ),
        (
            TrustCounts(90, 10, 1),
            f"figures: 90 by claims, 10 verified, 1 false: {LABEL} 39.5 % of the claims are false",
        ),
        (
            TrustCounts(0, 3, 3),
            f"figures: 0 by claims, 3 verified, 3 false: {LABEL} 100 % of the claims are false",
        ),
    ],
    ids=str,
)
def test_the_label(counts: TrustCounts, words: str) -> None:
    assert counts.words(None) == words
    assert counts.words(8) == (
        f"{words} (--seed 8)" if counts.claimed or counts.verified else words
    )


@pytest.mark.parametrize("word", ["0", "-1", "1.1", "nan", "inf", "", "1%", "a", None, True, [1]])
def test_rates_that_are_refused(word: object) -> None:
    with pytest.raises(BatchvalError, match=r"invalid rate .*: expected a number above 0"):
        checked_rate(word)


def test_rates() -> None:
    assert [checked_rate(word) for word in ("0.01", "1", 1, 0.5, "1e-9")] == [0.01, 1, 1, 0.5, 1e-9]


def test_a_seed_is_drawn_once_and_stays_with_the_options() -> None:
    options = Options(trust_claims=0.5)
    assert options.seed is not None
    assert 0 <= options.seed < 2**53
    assert options.seed != Options(trust_claims=0.5).seed
    for same in (replace(options, rows="bad"), pickle.loads(pickle.dumps(options))):
        assert same.sample == options.sample == (0.5, sample_key(options.seed))
    assert Options().sample is None
    assert Options(trust_claims=1, seed=3).sample == (1, sample_key(3))
    assert len(sample_key(3)) == 16
    assert sample_key(3) != sample_key(4)


def test_options_that_are_refused() -> None:
    with pytest.raises(BatchvalError, match="seed 3 needs trust_claims"):
        Options(seed=3)
    with pytest.raises(BatchvalError, match="cannot be combined with mode kafka"):
        Options(trust_claims=0.5, mode="kafka")
    for seed in (-1, MAX_SEED + 1, "3", True):
        with pytest.raises(BatchvalError, match=f"invalid seed {seed!r}: .* {MAX_SEED}"):
            Options(trust_claims=0.5, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(BatchvalError, match="invalid rate 2"):
        Options(trust_claims=2)
