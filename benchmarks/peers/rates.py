"""Statistics of a scene's rates, in the format of the results."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.harness.answers import number, ratios, thousands
from benchmarks.harness.interval import Estimate, estimate

Side = dict[str, Any]


def best_of(scene: dict[str, Any], kind: str) -> Side | None:
    """Return the side of a kind with the greatest median rate, or None without one."""
    of_kind = [side for side in scene["sides"] if side["kind"] == kind]
    return max(of_kind, key=lambda side: median(side["rates"]), default=None)


def speed_against(side: Side, other: Side) -> Estimate:
    """Return the ratio of two rates, taken round by round."""
    return estimate(ratios(side["rates"], other["rates"]))


def shares(scene: dict[str, Any]) -> dict[str, float]:
    """Return the rate of each side over that of the faster ideal: the median of the rounds."""
    ideal = best_of(scene, "ideal")
    if ideal is None:
        return {}
    return {side["name"]: speed_against(side, ideal).median for side in scene["sides"]}


def native_words(scene: dict[str, Any]) -> str:
    """Return the rate of EnvPool, in bold and with how much it is ahead where it is; "" if not measured."""
    ours, native = best_of(scene, "ours"), best_of(scene, "native")
    if ours is None or native is None:
        return ""
    rate, speed = thousands(median(native["rates"])), speed_against(native, ours)
    return f"**{rate}, {number(speed.median)}x ours**" if speed.median > 1 else rate
