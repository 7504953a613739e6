"""Goals, and their evaluation for a run."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.answers import Answer
from benchmarks.peers.goals import Goal, side
from benchmarks.rollouts.catalogue import LOCAL, RAY, RLLIB, TORCHRL, Probe

TITLES = {
    "cartpole": "CartPole-v1",
    "halfcheetah": "HalfCheetah-v5",
    "84x84x4": "observations of 84x84x4 bytes",
    "128x128x3": "observations of 128x128x3 bytes",
}
# Of what comes from workers without Ray, and of what comes from peers on Ray: the target and the aim.
LOCAL_GOALS: dict[str, tuple[float, float] | tuple[None, None]] = {
    "cartpole": (0.7, 0.9),
    "halfcheetah": (0.9, 1.0),
}
PEER_GOAL = (2.0, 4.0)


def goals() -> list[Goal]:
    """Return all goals that scenes answer, in the order of the table."""
    found = []
    for scene, title in TITLES.items():
        for other, (at_least, aim) in (
            (LOCAL, LOCAL_GOALS.get(scene, (None, None))),
            (RLLIB, PEER_GOAL),
            (TORCHRL, PEER_GOAL),
        ):
            name = f"{other.name.split(',')[0].lower()}/{scene}".replace("parllel", "local")
            what = f"{title}, parllel on Ray against {other.name}"
            found.append(Goal(name, what, scene, RAY.name, side(other.name), at_least, aim))
    return found


def probe_answer(probe: Probe, values: Sequence[float], note: str = "") -> Answer:
    """Return what a probe came to."""
    return Answer(
        probe.name,
        probe.what,
        list(values),
        probe.at_most,
        probe.aim,
        probe.unit,
        small=True,
        note=note,
        settings=probe.settings,
    )
