"""The README's table: rates of random actions and of whole trainings, compared with other libraries."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.harness.answers import comparison_words, number, ratios, table, thousands
from benchmarks.harness.interval import Estimate, estimate
from benchmarks.peers.rates import best_of, native_words, speed_against

# Shown by what users ask about, whether it looks good or not; at most ten rows with those of trainings.
SCENES = {
    "cartpole": "CartPole-v1",
    "cartpole-4": "CartPole-v1, 4 environments",
    "cartpole-128": "CartPole-v1, 128 environments",
    "halfcheetah": "HalfCheetah-v5",
    "ant": "Ant-v5",
    "pendulum": "Pendulum-v1",
    "minigrid": "MiniGrid-DoorKey-8x8-v0",
    "pong": "ALE/Pong-v5, 210x160x3",
}
TRAININGS = ("cartpole", "halfcheetah")
HEADS = (
    "",
    "parllel",
    "fastest other, Python",
    "parllel is",
    "our target",
    "EnvPool, C++",
    "parllel, compiled environments",
)


def markdown(peers: dict[str, Any], end_to_end: dict[str, Any]) -> str:
    """Return the table as Markdown, with what it was measured on."""
    machine = peers["machine"]
    by_name = {scene["name"]: scene for scene in peers["scenes"]}
    targets = {
        answer["name"].removeprefix("best-peer/"): answer["at_least"]
        for answer in peers["answers"]
        if answer["name"].startswith("best-peer/")
    }
    rows = [
        scene_row(title, by_name[name], targets.get(name))
        for name, title in SCENES.items()
        if name in by_name
    ]
    trained = {scene["name"]: scene for scene in end_to_end["scenes"]}
    rows += [training_row(trained[name]) for name in TRAININGS]
    lines = [
        f"Environment steps per second on {machine['cores']} cores of an {machine['cpu']}: random actions in "
        "16 environments unless noted otherwise, and complete PPO trainings. Figures are medians of "
        "interleaved rounds, with 95 % intervals in parentheses. A target is reached when the lower bound of "
        "the interval reaches it.",
        "",
        *table(HEADS, rows, "lrlllll"),
    ]
    return "\n".join(lines) + "\n"


def scene_row(title: str, scene: dict[str, Any], target: float | None) -> list[str]:
    """Return what a scene of random actions came to."""
    ours, peer = best_of(scene, "ours"), best_of(scene, "peer")
    assert ours is not None
    assert peer is not None
    other = f"{thousands(median(peer['rates']))} {peer['name']}"
    compiled, native = best_of(scene, "compiled"), best_of(scene, "native")
    words = ""
    if compiled is not None:
        words = thousands(median(compiled["rates"]))
        if native is not None:
            words += f", {number(speed_against(compiled, native).median)}x EnvPool's"
    speed = speed_against(ours, peer)
    return _row(title, ours["rates"], other, speed, target, native_words(scene), words)


def training_row(scene: dict[str, Any]) -> list[str]:
    """Return what whole trainings came to, in turn, against Stable-Baselines3."""
    ours, theirs = (
        [training["steps_per_second"] for training in scene["sides"][side]["trainings"]]
        for side in ("in_turn", "sb3")
    )
    speed = estimate(ratios(ours, theirs))
    (target,) = (
        one["times_faster"]["target"]
        for one in scene["comparisons"]
        if (one["ours"], one["peer"]) == ("in_turn", "sb3")
    )
    other = f"{thousands(median(theirs))} {scene['sides']['sb3']['title']}"
    words = ""
    if "compiled" in scene["sides"]:
        compiled = [
            training["steps_per_second"] for training in scene["sides"]["compiled"]["trainings"]
        ]
        ratio = f"{number(estimate(ratios(compiled, theirs)).median)}x"
        words = f"{thousands(median(compiled))}, {ratio} {scene['sides']['sb3']['title']}'s"
    return _row(f"PPO on {scene['settings']['env']}", ours, other, speed, target, "", words)


def _row(
    title: str,
    rates: list[float],
    other: str,
    speed: Estimate,
    target: float | None,
    native: str,
    compiled: str,
) -> list[str]:
    goal = "-"
    if target is not None:
        goal = f"{target:g}x: {'reached' if speed.reaches(target) else 'not reached'}"
    return [title, thousands(median(rates)), other, comparison_words(speed), goal, native, compiled]
