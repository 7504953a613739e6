"""Figures in words: one way to say how fast, what was asked for, and whether it was reached."""

from __future__ import annotations

from benchmarks.interval import Estimate


def comparison_words(speed: Estimate) -> str:
    """Return how our speed compares with another's, given ours over theirs."""
    if speed.low > 1:
        return f"{number(speed.median)}x faster ({number(speed.low)} to {number(speed.high)})"
    if speed.high < 1:
        time = speed.inverse()
        return f"{number(time.median)}x slower ({number(time.low)} to {number(time.high)})"
    return f"no clear difference: {number(speed.median)}x ({number(speed.low)} to {number(speed.high)})"


def goal_words(target: float, slower: bool = False) -> str:
    """Return what is asked of a speed, or of a time where less is better."""
    if target == 1:
        return "as fast"
    return f"at most {target:g}x slower" if slower else f"{target:g}x faster"


def met_words(met: bool | None, aim_met: bool | None = None) -> str:
    """Return whether a target was met, and if the aim was too."""
    if met is None:
        return "-"
    return "yes, and the aim" if aim_met else "yes" if met else "no"


def number(value: float) -> str:
    """Return a ratio with as many digits as it can carry."""
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"


def thousands(rate: float) -> str:
    """Return a rate rounded to hundreds, such as 178,000 or 5,900."""
    return f"{round(rate, -2):,.0f}"
