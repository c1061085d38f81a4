"""The confidence interval of a rate of successes."""

from __future__ import annotations

import math
from statistics import NormalDist


def interval(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the Wilson score interval (low, high) of the probability of a success.

    It stays within 0 and 1, and covers the probability about as often as it claims even for few trials (Wilson,
    "Probable inference, the law of succession, and statistical inference", Journal of the American Statistical
    Association 22, 1927; recommended by Brown, Cai and DasGupta, Statistical Science 16, 2001).

    Args:
        successes, count: The number of successes, and of trials, from 0 up. Without trials nothing is known: (0, 1).
        confidence: The share of such intervals that contain the probability.

    Raises:
        ValueError: `confidence` is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"expected confidence to be between 0 and 1, got {confidence}")
    if count == 0:
        return 0.0, 1.0
    z, rate = NormalDist().inv_cdf((1 + confidence) / 2), successes / count
    middle, scale = rate + z * z / (2 * count), 1 + z * z / count
    margin = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return max(0.0, (middle - margin) / scale), min(1.0, (middle + margin) / scale)
