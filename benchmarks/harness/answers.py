"""Results with their goals, and their formatting: value, goal, and whether it is met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.interval import Estimate, estimate

ANSWER_HEADS = ("what", "measured", "target (aim)", "met")
HEADS_WITHOUT_AIM = ("what", "measured", "target", "met")


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return the ratio of two sides' figures in each round."""
    return [one / other for one, other in zip(above, below, strict=True)]


@dataclass(frozen=True)
class Answer:
    """One line of the table.

    Attributes:
        values: one for each round; `estimate` is theirs.
        at_least, aim: to reach; None if none was set.
        small: whether small values are good.
        unit: written after the figures.
        void: why the figure must not be used, or "".
        note: settings and peers that it stands for.
    """

    name: str
    what: str
    values: list[float]
    at_least: float | None
    aim: float | None
    unit: str = ""
    small: bool = False
    void: str = ""
    note: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def estimate(self) -> Estimate | None:
        """Median and interval, or None where nothing was measured."""
        return estimate(self.values) if self.values else None

    def reaches(self, goal: float | None) -> bool | None:
        """Return whether the bound that counts reaches a goal; None without goal or figure."""
        found = self.estimate
        if goal is None or found is None or self.void:
            return None
        return found.reaches(goal, small_is_good=self.small)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        found = self.estimate
        return {
            "name": self.name,
            "what": self.what,
            "at_least": self.at_least,
            "aim": self.aim,
            "unit": self.unit,
            "small_is_good": self.small,
            "measured": None if found is None else found._asdict(),
            "met": self.reaches(self.at_least),
            "aim_met": self.reaches(self.aim),
            "void": self.void,
            "note": self.note,
            "settings": self.settings,
            "values": self.values,
        }


# ---------------------------------------------------------------------- tables


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> list[str]:
    """Return a table's lines in Markdown.

    align: "l" or "r" for each column; all to the left without it.
    """
    head = "|".join(f" {name} " if name else " " for name in heads)
    marks = ["---:" if side == "r" else "---" for side in align or "l" * len(heads)]
    return [f"|{head}|", *(f"| {' | '.join(cells)} |" for cells in (marks, *rows))]


def answer_table(
    answers: Iterable[dict[str, Any]], heads: Sequence[str] = ANSWER_HEADS
) -> list[str]:
    """Return the table of answers as they stand in a report."""
    return table(heads, map(answer_cells, answers))


def answer_cells(answer: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return what, measured, goal and verdict as text."""
    unit, found = answer["unit"], answer["measured"]
    if answer["void"]:
        measured = f"void: {answer['void']}"
    elif found is None:
        measured = answer["note"] or "not measured"
    else:
        middle, low, high = (_three_digits(found[name]) for name in ("median", "low", "high"))
        measured = f"{middle}{unit} ({low} to {high})"
    goal = "-"
    if answer["at_least"] is not None:
        most = "at most " if answer["small_is_good"] else ""
        aim = "" if answer["aim"] is None else f" ({answer['aim']:g}{unit})"
        goal = f"{most}{answer['at_least']:,g}{unit}{aim}"
    return answer["what"], measured, goal, met_words(answer["met"], answer["aim_met"])


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine_words(report: dict[str, Any]) -> str:
    """Return what a report was measured on, to begin a sentence with."""
    machine = report["machine"]
    return f"On {machine['cores']} cores of an {machine['cpu']}, {machine['python']}"


# ---------------------------------------------------------------------- words


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
