"""How a stream is dealt to several fronts so that its constraints hold of the whole: docs/cluster.md, "Several fronts"."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate
from typing import Iterable, Sequence, Union

from ._types import Arrivals, Constraint

#: Bounds that a stream may declare.
BOUNDS = 4


def density(constraint: Constraint) -> Fraction:
    """The share of requests that must be served so that it holds, whichever these are among balanced ones."""
    form, a, k = constraint.form, constraint.a, constraint.k
    misses, window = {
        1: (a, k),
        2: (k - a, k),
        3: (a, a + 1),
        # At least `a` in a row in any `k` is promised by at most so many misses among them.
        4: (k // a - 1 if a else k, k),
    }[form]
    if not 0 <= misses < window:
        raise ValueError(f"{constraint} leaves nothing to be served, or cannot hold")
    return Fraction(window - misses, window)


class Word:
    """The balanced word of a stream's constraints, and whose each of its requests is."""

    def __init__(self, constraints: Sequence[Constraint], fronts: int) -> None:
        if not constraints:
            raise ValueError("a stream without constraints needs no dealing: any front will do")
        self.density = max(density(constraint) for constraint in constraints)
        self.fronts = fronts

    def front(self, sequence: int) -> Union[int, None]:
        """Of the request with this number, from 0 on, the front that must answer it; ``None`` if none must."""
        before, after = (math.floor(count * self.density) for count in (sequence, sequence + 1))
        return before % self.fronts if after > before else None

    def misses(self, window: int, promising: Iterable[int]) -> int:
        """At most so many of any ``window`` consecutive requests are missed if these fronts answer all that they must."""
        kept = set(promising)
        # The word repeats after so many requests, and who gets them after so many times more.
        period = self.density.denominator * self.fronts
        served = accumulate((self.front(i) in kept for i in range(period + window)), initial=0)
        until = list(served)
        return window - min(until[begin + window] - until[begin] for begin in range(period))

    def share(self, arrivals: Sequence[Arrivals]) -> list[Arrivals]:
        """What each front is told of the requests that it must answer; each of these bounds holds of them."""
        # Of the whole, as many requests on average go by from one of a share to the next.
        apart = self.fronts / self.density
        rates: list[Arrivals] = []
        bursts: list[Arrivals] = []
        for bound in arrivals:
            if bound.form == 1:
                # Of so many windows the share is a whole number; of one alone it is rounded up.
                windows = Fraction(bound.a, 1) / apart
                rates.append(Arrivals(1, windows.numerator, bound.b * windows.denominator))
                if windows.denominator > 1:
                    bursts.append(Arrivals(1, math.ceil(windows), bound.b))
            else:
                period, jitter = (bound.a, bound.b) if bound.form == 2 else (bound.b, (bound.a - 1) * bound.b)
                # Where the share's requests are not equally far apart, one may come up to so much early.
                early = math.ceil(period * Fraction(apart.denominator - 1, apart.denominator))
                rates.append(Arrivals(2, math.floor(period * apart), jitter + early))
        return (rates + bursts)[:BOUNDS]
