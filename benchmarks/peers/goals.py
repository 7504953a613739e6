"""Goals, and their evaluation for a run.

A ratio is taken within each round; its median and interval, and the rule for "met", are those of
`benchmarks/harness/interval.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.harness.answers import Answer, ratios
from benchmarks.harness.interval import estimate
from benchmarks.harness.results import Report
from benchmarks.peers.catalogue import (
    CLEANRL_STYLE,
    ENVPOOL,
    GYMNASIUM_ASYNC,
    OURS,
    OURS_COMPILED,
    OURS_COMPILED_ENVS,
    OURS_TORCH,
)
from benchmarks.peers.client import SideError
from benchmarks.peers.driver import Effort, Measured, SceneResult, measure_scene
from benchmarks.peers.scenes import Scene


@dataclass(frozen=True)
class Goal:
    """A ratio between our side of a scene and something else there."""

    name: str
    what: str
    scene: str
    ours: str
    against: Callable[[SceneResult], tuple[str, Sequence[float]] | None]
    at_least: float | None = None
    aim: float | None = None
    unit: str = "x"
    is_share: bool = False

    def answer(self, result: SceneResult) -> Answer:
        """Return what a scene says; a figure without rounds if a side is missing."""
        ours, other = result.side(self.ours), self.against(result)
        if ours is None or other is None:
            missing = self.ours if ours is None else "what it is compared with"
            return self._line([], note=f"not measured: {missing} was left out")
        name, rates = other
        return self._line(ratios(ours.rates, rates), ours, f"{ours.settings}, against {name}")

    def _line(self, values: list[float], ours: Measured | None = None, note: str = "") -> Answer:
        void = ""
        if ours is not None and ours.agrees is False:
            void = "the sides did not step the same environments"
        elif values and self.is_share and estimate(values).low > 1:
            void = "a share above 1 beyond noise: the ideal is a wrong one"
        return Answer(
            self.name,
            self.what,
            values,
            self.at_least,
            self.aim,
            self.unit,
            void=void,
            note=note,
            settings=ours.settings if ours is not None else {},
        )


def ideal(result: SceneResult) -> tuple[str, Sequence[float]] | None:
    """Return the faster of the ideals."""
    return _named(result.best("ideal"))


def best_peer(result: SceneResult) -> tuple[str, Sequence[float]] | None:
    """Return the fastest peer whose environments are Python."""
    return _named(result.best("peer"))


def side(name: str) -> Callable[[SceneResult], tuple[str, Sequence[float]] | None]:
    """Return what finds a side by name."""
    return lambda result: _named(result.side(name))


def best_schedule(cores: int) -> Callable[[SceneResult], tuple[str, Sequence[float]] | None]:
    """Return what computes, for each round, the bound of the best schedule on so many cores.

    With step cost e and forward pass I(b): waiting in turn, B / (B e / c + I(B)); two alternating groups that
    keep all cores busy, c B / (B e + 2 I(B / 2)). The larger counts.
    """

    def bound(result: SceneResult) -> tuple[str, Sequence[float]] | None:
        found, B = result.best("ideal"), result.scene.workload.B
        if found is None or len(result.forward_s) != len(found.rates):
            return None
        return "the best schedule", [
            schedule_bound(B, cores, cores / rate, whole, half)
            for rate, (whole, half) in zip(found.rates, result.forward_s, strict=True)
        ]

    return bound


def schedule_bound(
    B: int, cores: int, step_s: float, forward_s: float, half_forward_s: float
) -> float:
    """Return the most steps per second that any schedule reaches, see `best_schedule`."""
    in_turn = B / (B * step_s / cores + forward_s)
    alternating = cores * B / (B * step_s + 2 * half_forward_s)
    return max(in_turn, alternating)


def _named(found: Measured | None) -> tuple[str, Sequence[float]] | None:
    return None if found is None else (f"{found.name} {found.settings}", found.rates)


def _share(scene: str, what: str, at_least: float | None = None, aim: float | None = None) -> Goal:
    text = f"{what}, share of the ideal"
    return Goal(f"share/{scene}", text, scene, OURS.name, ideal, at_least, aim, "", True)


def _best(scene: str, what: str, at_least: float | None = None, aim: float | None = None) -> Goal:
    text = f"{what}, against the best peer"
    return Goal(f"best-peer/{scene}", text, scene, OURS.name, best_peer, at_least, aim)


def _native(scene: str, what: str, at_least: float, aim: float | None = None) -> Goal:
    text = f"compiled {what}, against EnvPool"
    ours, other = OURS_COMPILED_ENVS.name, side(ENVPOOL.name)
    return Goal(f"native/{scene}", text, scene, ours, other, at_least, aim)


def goals(cores: int) -> list[Goal]:
    """Return all goals that scenes answer, in the order of the table."""
    torch, compiled = OURS_TORCH.name, OURS_COMPILED.name
    asynchronous = side(GYMNASIUM_ASYNC.name)
    return [
        _share("cartpole", "CartPole-v1", 0.80, 0.92),
        _share("cartpole-4", "CartPole-v1, B=4", 0.65, 0.80),
        _share("cartpole-128", "CartPole-v1, B=128", 0.85, 0.93),
        _share("halfcheetah", "HalfCheetah-v5", 0.88, 0.96),
        _share("pong", "ALE/Pong-v5, 210x160x3", 0.92, 0.97),
        _share("ant", "Ant-v5"),
        _share("pendulum", "Pendulum-v1"),
        _share("minigrid", "MiniGrid-DoorKey-8x8-v0"),
        _share("synthetic", "synthetic, 50 us"),
        _share("synthetic-uneven", "synthetic, 0 to 100 us, 4 info keys"),
        _share("synthetic-large", "synthetic, 50 us, 100 kB observations"),
        _best("cartpole", "CartPole-v1", 1.9, 2.2),
        _best("halfcheetah", "HalfCheetah-v5", 1.8, 2.0),
        _best("pong", "ALE/Pong-v5", 1.6, 1.8),
        Goal(
            "async/cartpole",
            "CartPole-v1, against gymnasium AsyncVectorEnv",
            *("cartpole", OURS.name, asynchronous, 14, 16),
        ),
        _native("cartpole-4", "CartPole, B=4", 1),
        _native("cartpole", "CartPole, B=16", 10),
        _native("cartpole-128", "CartPole, B=128", 25, 50),
        _native("pendulum", "Pendulum", 1),
        _native("minigrid", "MiniGrid DoorKey", 1),
        Goal(
            "policy/bound",
            "2x64 torch policy, share of the best schedule's bound",
            *("policy", torch, best_schedule(cores), 0.75, 0.88, "", True),
        ),
        Goal(
            "policy/cleanrl-style",
            "2x64 torch policy, against a CleanRL-style loop",
            *("policy", torch, side(CLEANRL_STYLE.name), 3, 4),
        ),
        Goal(
            "policy/compiled",
            "compiled small policy, against our own torch path",
            *("policy", compiled, side(torch), 1.3, 1.8),
        ),
    ]


def answer_scenes(
    scenes: Sequence[Scene], effort: Effort, asked: Sequence[Goal], report: Report
) -> list[Answer]:
    """Measure scenes, print their rates, keep them in the report, and return what they answer."""
    answers: list[Answer] = []
    for scene in scenes:
        print(f"{scene.name}: {scene.workload.env_id}, B={scene.workload.B}", flush=True)
        try:
            result = measure_scene(scene, effort, say=lambda line: print(line, flush=True))
        except SideError as error:
            report["not_measured"][scene.name] = str(error)
            print(f"  {error}", flush=True)
            continue
        _print_rates(result)
        report["scenes"].append({**result.as_dict(), "settings": asdict(effort)})
        answers += [goal.answer(result) for goal in asked if goal.scene == scene.name]
    return answers


def _print_rates(result: SceneResult) -> None:
    """Print a line for each side, the fastest first."""
    fastest = result.best("ideal")
    for one in sorted(result.sides, key=lambda one: -one.median):
        share = f"{one.median / fastest.median:6.2f} of the ideal" if fastest is not None else ""
        differs = "  NOT THE SAME ENVIRONMENTS" if one.agrees is False else ""
        print(
            f"  {one.name:34} {one.median:12,.0f} steps/s {share}  {one.settings}{differs}",
            flush=True,
        )
