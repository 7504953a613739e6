"""Take turns: a short choice of settings for each side, then rounds A B C A B C of all at their best.

A side that is not measured is halted, so that one which spins while it waits takes no core from the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeAlias

from benchmarks.harness import turns
from benchmarks.harness.machine import usable_cores
from benchmarks.peers.catalogue import FORWARD, IDEAL, Entry, Settings
from benchmarks.peers.client import SideError, SideProcess, Together
from benchmarks.peers.scenes import Scene
from benchmarks.peers.workload import Workload

FINAL_SHARE = 0.8  # of the fastest setting, to be tried further
_WHY = 500  # characters of a reason
Server: TypeAlias = SideProcess | Together
Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Effort(turns.Effort):
    """How long to measure.

    Attributes:
        trials: turns of each setting while choosing.
        trial_s: about how long one of those is.
        finals: further turns of those that are within a fifth of the best then.
        settings: how many settings a side may try at most; None for all.
        warm_batches: that are not measured at the start of a turn. Sides that work ahead begin one with what
            was ready before.
    """

    rounds: int = 15
    turn_s: float = 0.4
    trials: int = 3
    trial_s: float = 0.15
    finals: int = 8
    settings: int | None = None
    warm_batches: int = 0


@dataclass
class Measured:
    """One side of a scene."""

    name: str
    kind: str
    settings: Settings
    versions: dict[str, str]
    trace: dict[str, float]
    trials: list[dict[str, Any]]
    batches: int = 0
    # Whether the first batch was the ideal's; None for sides that do not promise it.
    agrees: bool | None = None
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median steps per second."""
        return statistics.median(self.rates)


@dataclass
class SceneResult:
    """What came of a scene."""

    scene: Scene
    sides: list[Measured] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    # Of each round, where the scene has a model: seconds of a forward pass over B, and over B / 2.
    forward_s: list[tuple[float, float]] = field(default_factory=list)

    def side(self, name: str) -> Measured | None:
        """Return a side that was measured, or None."""
        return next((side for side in self.sides if side.name == name), None)

    def best(self, kind: str) -> Measured | None:
        """Return the fastest side of a kind, by its median, or None."""
        of_kind = [side for side in self.sides if side.kind == kind]
        return max(of_kind, key=lambda side: side.median, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values, with every figure of every side."""
        return {
            "name": self.scene.name,
            "measured": datetime.now(timezone.utc).isoformat(timespec="minutes"),
            "workload": self.scene.workload.as_dict(),
            "sides": [asdict(side) for side in self.sides],
            "left_out": self.left_out,
            "forward_s": self.forward_s,
        }


def measure_scene(scene: Scene, effort: Effort, say: Say = lambda line: None) -> SceneResult:
    """Choose settings, then interleave; what fails is left out with its reason.

    Raises:
        SideError: if every side failed.
    """
    result = SceneResult(scene)
    chosen: list[tuple[Entry, Settings, list[dict[str, Any]]]] = []
    for entry in scene.entries:
        try:
            chosen.extend(choose(entry, scene.workload, effort))
        except SideError as error:
            _leave_out(result, entry, str(error), say)
    with ExitStack() as stack:
        servers: list[tuple[Server, Measured]] = []
        for entry, settings, trials in chosen:
            try:
                server, prepared = stack.enter_context(opened(entry, scene.workload, settings))
                batches = batches_for(server, effort.turn_s, effort.warm_batches)
                server.stop()
            except SideError as error:
                _leave_out(result, entry, str(error), say)
                continue
            name = entry.name if entry is not IDEAL else ideal_name(settings)
            side = Measured(name, entry.kind, settings, **prepared, trials=trials, batches=batches)
            servers.append((server, side))
        if not servers:
            raise SideError(f"{scene.name}: no side could be measured: {result.left_out}")
        for number in range(effort.rounds):
            if servers:
                _round(result, servers, number, effort, say)
    result.sides = [side for _, side in servers]
    _compare_traces(result)
    return result


def _round(
    result: SceneResult,
    servers: list[tuple[Server, Measured]],
    number: int,
    effort: Effort,
    say: Say,
) -> None:
    # Each round begins with another side, so that none is always the first after a pause.
    first = number % len(servers)
    for server, side in servers[first:] + servers[:first]:
        try:
            server.resume()
            if side.name == FORWARD.name:
                B = result.scene.workload.B
                forward = [server.ask("forward_s", batch=b) for b in (B, B // 2)]
                result.forward_s.append((forward[0], forward[1]))
                side.rates.append(B / forward[0])
            else:
                side.rates.append(_turn(server, side.batches, effort))
            server.stop()
        except SideError as error:
            servers.remove((server, side))
            result.left_out.append({"side": side.name, "why": str(error)})
            say(f"  left out: {side.name}: {error}")


def _turn(server: Server, batches: int, effort: Effort) -> float:
    """Return the rate of a turn."""
    if effort.warm_batches:
        server.run(effort.warm_batches)
    return server.run(batches).rate


def _compare_traces(result: SceneResult) -> None:
    """Note which sides stepped the same environments as the ideal did."""
    ideal = result.best("ideal")
    promised = {entry.name for entry in result.scene.entries if entry.same_steps}
    for side in result.sides:
        if ideal is not None and side.name in promised:
            side.agrees = same_trace(side.trace, ideal.trace)


def same_trace(trace: dict[str, float], other: dict[str, float]) -> bool:
    """Return whether two first batches are the same: counts exactly, sums to float32 rounding."""
    if any(trace[key] != other[key] for key in ("steps", "ended")):
        return False
    sums = ("reward", "observation")
    return all(math.isclose(trace[key], other[key], rel_tol=1e-4, abs_tol=1e-2) for key in sums)


def choose(
    entry: Entry, workload: Workload, effort: Effort
) -> list[tuple[Entry, Settings, list[dict[str, Any]]]]:
    """Return the entry with its fastest setting and all trials; the ideal with every setting.

    Raises:
        SideError: if there is nothing to try, or every setting failed.
    """
    if entry.python is None:
        raise SideError(
            f"the virtual environment {entry.venv!r} has not been made: "
            f"run python benchmarks/peers/venvs.py {entry.venv}"
        )
    cores = len(usable_cores())
    candidates = entry.settings(workload, cores)[: effort.settings]
    if not candidates:
        raise SideError(f"no setting fits {workload.B} environments on {cores} cores")
    if entry is IDEAL or len(candidates) == 1:
        return [(entry, settings, []) for settings in candidates]
    trials, failures = _try_all(entry, workload, candidates, effort)
    if not trials:
        raise SideError("; ".join(failures))
    best = max(trials, key=lambda trial: float(trial["median"]))
    return [(entry, best["settings"], [*trials, *({"failed": why} for why in failures)])]


def _try_all(
    entry: Entry, workload: Workload, candidates: Sequence[Settings], effort: Effort
) -> tuple[list[dict[str, Any]], list[str]]:
    """Take turns among settings; return what each came to, and why others failed."""
    failures: list[str] = []
    trials: list[tuple[Server, int, dict[str, Any]]] = []
    with ExitStack() as stack:
        for settings in candidates:
            try:
                server, _ = stack.enter_context(opened(entry, workload, settings))
                batches = batches_for(server, effort.trial_s, effort.warm_batches)
                server.stop()
                trials.append((server, batches, {"settings": settings, "rates": []}))
            except SideError as error:
                failures.append(f"{settings}: {error}")
        final: list[tuple[Server, int, dict[str, Any]]] = []
        for turn in range(effort.trials + effort.finals):
            if turn == effort.trials:
                # Some seconds of a slower core decide nothing: those that are close get more turns.
                best = max((_median(answer) for _, _, answer in trials), default=0.0)
                final = [t for t in trials if _median(t[2]) >= FINAL_SHARE * best]
            for trial in list(trials if turn < effort.trials else final):
                server, batches, answer = trial
                try:
                    server.resume()
                    answer["rates"].append(_turn(server, batches, effort))
                    server.stop()
                except SideError as error:
                    trials.remove(trial)
                    final = [t for t in final if t is not trial]
                    failures.append(f"{answer['settings']}: {error}")
    answers = [answer for _, _, answer in trials]
    for answer in answers:
        answer["median"] = _median(answer)
    return answers, failures


def _median(trial: dict[str, Any]) -> float:
    return float(statistics.median(trial["rates"]))


@contextmanager
def opened(
    entry: Entry, workload: Workload, settings: Settings
) -> Iterator[tuple[Server, dict[str, Any]]]:
    """Start a side and prepare it; end it when the caller is done."""
    python = entry.python
    assert python is not None
    server: Server
    wanted: Any = settings
    if entry is IDEAL:
        cores = usable_cores()[: workload.B]
        server = Together(entry.name, python, len(cores))
        wanted = [
            {"share": i, "shares": len(cores), "core": core if settings["pinned"] else None}
            for i, core in enumerate(cores)
        ]
    else:
        server = SideProcess(entry.name, python, halts=entry.halts)
    try:
        yield server, server.prepare(entry.side, workload, wanted)
    finally:
        server.close()


def batches_for(server: Server, turn_s: float, warm_batches: int = 0) -> int:
    """Return how many batches take about `turn_s`, at least one."""
    # First calls compile, make views and touch memory.
    server.run(max(1, warm_batches))
    batches = 1
    # Until they take as long: a side that works ahead may have had several ready, and one that moves much
    # memory pauses when it touches it for the first time.
    while (seconds := server.run(batches).seconds) < turn_s:
        batches *= 2
    return max(1, round(batches * turn_s / seconds))


def ideal_name(settings: Settings) -> str:
    """Return the name of one of the ideals."""
    return "ideal, pinned" if settings["pinned"] else "ideal"


def _leave_out(result: SceneResult, entry: Entry, why: str, say: Say) -> None:
    # Of a cluster it is the traceback of another process, which may be pages long.
    why = why if len(why) <= _WHY else f"{why[:_WHY]}..."
    result.left_out.append({"side": entry.name, "why": why})
    say(f"  left out: {entry.name}: {why}")
