"""Goals and tables."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.harness.answers import (
    HEADS_WITHOUT_AIM,
    Answer,
    answer_table,
    machine_words,
    ratios,
    table,
    thousands,
)

Rates = dict[str, list[float]]
SYNC, ASYNC = "gymnasium SyncVectorEnv", "gymnasium AsyncVectorEnv"
DUMMY, SUBPROC = "SB3 DummyVecEnv", "SB3 SubprocVecEnv"
GYMNASIUM, STABLE_BASELINES = "VectorEnv", "VecEnv"
HERE = "in this process"
TITLES = {
    "cartpole": "CartPole-v1",
    "halfcheetah": "HalfCheetah-v5",
    "pong": "ALE/Pong-v5, 210x160x3",
}
PEERS = {SYNC: GYMNASIUM, ASYNC: GYMNASIUM, DUMMY: STABLE_BASELINES, SUBPROC: STABLE_BASELINES}
CARTPOLE_GOALS = {SYNC: 1.2, ASYNC: 8.0, DUMMY: 1.2, SUBPROC: 8.0}


def answers(rates: dict[str, Rates], trainings: dict[str, Rates]) -> list[Answer]:
    """Return what the rounds came to.

    rates, trainings: of each scene, steps per second of each side, a value for each round.
    """
    found = []
    for scene, of_sides in rates.items():
        title = TITLES[scene]
        if scene == "cartpole":
            found += [
                _against(f"{scene}/{peer}", f"{title}: {kind} against {peer}", of_sides, kind, peer)
                for peer, kind in PEERS.items()
            ]
        else:
            peer = _best(of_sides, PEERS)
            what = f"{title}: VectorEnv against the best of the others, {peer}"
            found.append(_against(f"{scene}/best", what, of_sides, GYMNASIUM, peer))
        found.append(
            Answer(
                f"{scene}/here",
                f"{title}: VectorEnv in this process against {SYNC}",
                ratios(of_sides[f"{GYMNASIUM}, {HERE}"], of_sides[SYNC]),
                *(1.0, None, "x"),
            )
        )
    for scene, of_sides in trainings.items():
        peer = _best(of_sides, (DUMMY, SUBPROC))
        what = f"{TITLES[scene]}: PPO of Stable-Baselines3 on VecEnv against {peer}"
        found.append(_against(f"{scene}/ppo", what, of_sides, STABLE_BASELINES, peer))
    return found


def _against(name: str, what: str, rates: Rates, kind: str, peer: str) -> Answer:
    ours = _best(rates, (side for side in rates if side.startswith(f"{kind},")))
    scene, _, question = name.partition("/")
    goal = CARTPOLE_GOALS.get(peer) if scene == "cartpole" else 1.5
    return Answer(
        name,
        what,
        ratios(rates[ours], rates[peer]),
        *(None if question == "ppo" else goal, None, "x"),
        note=ours,
    )


def _best(rates: Rates, sides: Iterable[str]) -> str:
    return max(sides, key=lambda side: median(rates[side]))


def markdown(report: dict[str, Any]) -> str:
    """Return the tables for docs/vector.md, with what they were measured on."""
    settings = report["settings"]
    lines = [
        f"{machine_words(report)}; 16 environments with drawn actions, medians of {settings['rounds']} "
        f"interleaved rounds of {settings['turn_s']:g} s with their 95 % intervals. Ours are measured in "
        "this process, with workers, and as planned by default; the fastest of these is compared.",
        "",
        *answer_table(report["answers"], HEADS_WITHOUT_AIM),
        "",
        *_rate_table("steps per second", report["rates"]),
        "",
        *_rate_table("PPO, steps per second", report["trainings"]),
    ]
    return "\n".join(lines) + "\n"


def _rate_table(title: str, rates: dict[str, Rates]) -> list[str]:
    sides = list(dict.fromkeys(side for of_sides in rates.values() for side in of_sides))
    return table(
        (title, *(TITLES[scene] for scene in rates)),
        [
            (side, *(thousands(median(of_sides[side])) for of_sides in rates.values()))
            for side in sides
        ],
        "l" + "r" * len(rates),
    )
