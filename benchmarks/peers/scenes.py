"""Scenes: a workload and the sides that run it in turn."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.peers.catalogue import (
    CLEANRL_STYLE,
    FORWARD,
    IDEAL,
    OURS,
    OURS_COMPILED,
    OURS_COMPILED_ENVS,
    OURS_TORCH,
    PEERS,
    Entry,
)
from benchmarks.peers.workload import Workload


@dataclass(frozen=True)
class Scene:
    """One workload.

    Attributes:
        name: as `--only` and the figures know it.
        entries: the sides; those that cannot run it are left out, with the reason.
        quick: whether a quick run shows it.
    """

    name: str
    workload: Workload
    entries: tuple[Entry, ...]
    quick: bool = False


EVERYONE = (IDEAL, OURS, *PEERS)
WITH_COMPILED = (*EVERYONE, OURS_COMPILED_ENVS)
POLICIES = (IDEAL, FORWARD, OURS_TORCH, OURS_COMPILED, CLEANRL_STYLE)
SCENES = [
    Scene("cartpole", Workload("CartPole-v1"), WITH_COMPILED, quick=True),
    Scene("cartpole-4", Workload("CartPole-v1", B=4), WITH_COMPILED),
    Scene("cartpole-128", Workload("CartPole-v1", B=128), WITH_COMPILED),
    Scene("halfcheetah", Workload("HalfCheetah-v5"), EVERYONE),
    Scene("ant", Workload("Ant-v5"), EVERYONE),
    Scene("pendulum", Workload("Pendulum-v1"), WITH_COMPILED),
    Scene("minigrid", Workload("MiniGrid-DoorKey-8x8-v0"), WITH_COMPILED),
    Scene("pong", Workload("ALE/Pong-v5"), EVERYONE),
    Scene("synthetic", Workload("synthetic", options={"turns": 5000}), EVERYONE),
    Scene(
        "synthetic-uneven",
        Workload("synthetic", options={"turns": 5000, "spread": 1.0, "info_keys": 4}),
        EVERYONE,
    ),
    Scene(
        "synthetic-large",
        Workload("synthetic", options={"turns": 5000, "observation_size": 25_000}),
        EVERYONE,
    ),
    Scene("policy", Workload("CartPole-v1"), POLICIES, quick=True),
]


def chosen_scenes(scenes: Sequence[Scene], options: Namespace) -> list[Scene]:
    """Return the scenes to measure, with the sides that are wanted."""
    chosen = [
        scene
        for scene in scenes
        if (scene.name in options.only if options.only else scene.quick or not options.quick)
    ]
    if not options.sides:
        return chosen
    kept = [
        replace(scene, entries=tuple(e for e in scene.entries if e.name in options.sides))
        for scene in chosen
    ]
    return [scene for scene in kept if scene.entries]
