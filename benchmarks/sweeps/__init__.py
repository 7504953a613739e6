"""How much sooner is a sweep done if its runs share the cores than if they run one after the other?"""

from __future__ import annotations

from statistics import median
from typing import Any


def markdown(report: dict[str, Any]) -> str:
    """Return a sentence for docs/sweeps.md."""
    machine, ratio, runs = report["machine"], report["ratio"], report["settings"]["runs"]
    two, one = median(report["two_jobs_s"]), median(report["one_job_s"])
    return (
        f"On {machine['cores']} cores of an {machine['cpu']}, a sweep of {runs} PPO runs on "
        f"CartPole took {two:.0f} s with two jobs and {one:.0f} s with one: {ratio['median']:.2f} of the "
        f"time ({ratio['low']:.2f} to {ratio['high']:.2f}).\n"
    )
