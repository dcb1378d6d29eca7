"""Claims that are trusted in place of the records of batches at rest, and the verified sample.

A batch with claims in its payload (docs/concepts/claims.md) that agree with its header is taken by
its claims, unless the keyed sample draws it: then it is decompressed and its claims are compared.
From ``verified`` drawn batches, of which ``lying`` had claims that lie, follows an upper bound of
the share of lies among all of these batches: that of Clopper and Pearson (1934), one-sided. Without
a lie it is 1 - (1 - confidence)^(1 / verified).
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass

import numpy as np

from batchval.core.batches.columns import BatchColumns
from batchval.core.batches.result import CLAIMS, FIGURES
from batchval.errors import BatchvalError
from batchval.types import MAX_SEED

__all__ = [
    "CONFIDENCE",
    "TrustCounts",
    "by_row",
    "checked_rate",
    "checked_seed",
    "highest_share",
    "new_seed",
    "sample_key",
]

CONFIDENCE = 0.95
_CLAIMS, _SAMPLE = FIGURES.index("claims"), FIGURES.index("sample")
_HONEST, _LYING = CLAIMS.index("honest"), CLAIMS.index("lying")
_KEY_SIZE = 16
_EXPECTED = "expected a number above 0 and at most 1, for example 0.01"


def checked_rate(word: object) -> float:
    """Return a rate of --trust-claims. Raises BatchvalError."""
    try:
        rate = (
            float(word)
            if isinstance(word, str | int | float) and not isinstance(word, bool)
            else math.nan
        )
    except ValueError:
        rate = math.nan
    if not 0 < rate <= 1:
        raise BatchvalError(f"invalid rate {word!r}: {_EXPECTED}")
    return rate


def checked_seed(number: object) -> int:
    """Return a seed. Raises BatchvalError."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_SEED:
        raise BatchvalError(
            f"invalid seed {number!r}: expected a whole number from 0 to {MAX_SEED}"
        )
    return number


def new_seed() -> int:
    """Return a random seed, which JSON readers with 64-bit floats can hold."""
    return secrets.randbits(53)


def sample_key(seed: int) -> bytes:
    """Return the key of the sample that a seed stands for."""
    return hashlib.sha256(b"batchval sample %d" % seed).digest()[:_KEY_SIZE]


@dataclass
class TrustCounts:
    """Counts of batches with trusted claims.

    ``claimed``   not drawn: their figures are those of their claims
    ``verified``  drawn: decompressed, and their claims compared
    ``lying``     of these, those whose claims lie
    """

    claimed: int = 0
    verified: int = 0
    lying: int = 0

    def count(self, columns: BatchColumns) -> None:
        """Count the batches of a check at rest."""
        claimed, verified, lying = by_row(columns)
        self.add(TrustCounts(int(claimed.sum()), int(verified.sum()), int(lying.sum())))

    def add(self, other: TrustCounts) -> None:
        """Add the counts of other batches."""
        self.claimed += other.claimed
        self.verified += other.verified
        self.lying += other.lying

    @property
    def lies_at_most(self) -> float | None:
        """Return the upper bound of the share of lies; None where no batch was verified."""
        return highest_share(self.lying, self.verified) if self.verified else None

    def words(self, seed: int | None) -> str:
        """Return the label of figures that come from claims, as one line."""
        if not self.claimed and not self.verified:
            return "figures: no batch has claims that can be trusted"
        line = f"figures: {self.claimed:,} by claims, {self.verified:,} verified, "
        line += f"{self.lying:,} false: "
        if self.lies_at_most is None:
            line += "the share of false claims is unknown"
        else:
            share = _percent(self.lies_at_most)
            line += (
                f"with {100 * CONFIDENCE:g} % confidence at most {share} of the claims are false"
            )
        return line if seed is None else f"{line} (--seed {seed})"

    def row(self, rate: float, seed: int | None) -> dict[str, object]:
        """Return the fields of --json."""
        return {
            "trust_claims": rate,
            "seed": seed,
            "claimed": self.claimed,
            "verified": self.verified,
            "lying": self.lying,
            "lies_at_most": self.lies_at_most,
        }


def by_row(columns: BatchColumns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which rows are claimed, verified and lying, as TrustCounts counts them."""
    figures, claims = columns["figures"], columns["claims"]
    drawn = figures == _SAMPLE
    lying = drawn & (claims == _LYING)
    return figures == _CLAIMS, lying | (drawn & (claims == _HONEST)), lying


def _percent(share: float) -> str:
    """Return a share in percent, rounded up to three digits: it is an upper bound."""
    percent = 100 * share
    if percent >= 100:
        return "100 %"
    unit = 10.0 ** (math.floor(math.log10(percent)) - 2)
    return f"{min(math.ceil(percent / unit - 1e-9) * unit, 100):.3g} %"


# ---- Clopper and Pearson -------------------------------------------------------------------------


def highest_share(lying: int, verified: int, confidence: float = CONFIDENCE) -> float:
    """Return the share of lies of which so few or fewer are found with probability 1 - confidence.

    Raises ValueError for counts that cannot be.
    """
    if not 0 <= lying <= verified or verified < 1:
        raise ValueError(
            f"lying is {lying} and verified is {verified}: "
            "expected 0 <= lying <= verified and verified >= 1"
        )
    if lying == verified:
        return 1.0
    if not lying:
        return -math.expm1(math.log1p(-confidence) / verified)
    low, high = lying / verified, 1.0
    for _ in range(200):  # until the two are neighbours
        middle = (low + high) / 2
        if not low < middle < high:
            break
        # P(X <= lying) for a share of ``middle``
        if _beta(1 - middle, verified - lying, lying + 1) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by Lentz's continued fraction
    (Numerical Recipes, 6.4).
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(front) * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    found = d
    for m in range(1, 100_000):  # about the square root of the larger of both is needed
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + step * d, tiny)
            c = _away(1 + step / c, tiny)
            found *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return found


def _away(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
