"""Experiment: operators that play the same episodes, and the result."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from parllel.distributed.operators.experiments.earlier_part import PlayedPart, earlier_part
from parllel.distributed.operators.experiments.episode_gate import (
    EpisodeGate,
    FreeGate,
    LockStepGate,
)
from parllel.distributed.operators.experiments.episode_outcome import MIN_UNDERSTOOD
from parllel.distributed.operators.experiments.experiment_folder import ExperimentFolder
from parllel.distributed.operators.experiments.experiment_seeds import (
    SeedsLike,
    agent_seeds_of,
    seeds_as_json,
    seeds_of,
)
from parllel.distributed.operators.experiments.experiment_threads import (
    ExperimentProgress,
    play_all,
)
from parllel.distributed.operators.experiments.film import Film
from parllel.distributed.operators.experiments.operator_session import (
    Episodes,
    OperatorSession,
    SessionObserver,
)
from parllel.distributed.operators.experiments.results import COMPARISONS, GroupResult
from parllel.distributed.operators.experiments.session_parts import (
    episodes_of,
    labels_of,
    launch_of,
)
from parllel.distributed.operators.experiments.spending import Spending, checked_budget
from parllel.distributed.operators.games.seated_players import Notice, ignore_notice
from parllel.distributed.operators.operator_launcher import OperatorLauncher
from parllel.distributed.operators.protocol.choosing import Choose
from parllel.distributed.operators.protocol.multi_agent_config import (
    AnyConfig,
    MultiAgentConfig,
    ids_of,
)
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.distributed.operators.viewers import Viewer
from parllel.system.processes.restart_budget import RestartBudget

MODES = ("free", "lockstep")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


class ExperimentMonitor(Protocol):
    """Observes a running experiment and may pause it, for example to show it on a page.

    Records and results are the same without it.
    """

    @property
    def viewers(self) -> Sequence[Viewer]:
        """The viewers that receive pictures."""

    def gate(self, inner: EpisodeGate) -> EpisodeGate:
        """Return the gate that operators pass instead of `inner`; it must pass `inner` itself."""

    def observer(self, name: str) -> SessionObserver:
        """Return the observer of an operator's or game's episodes."""

    def choose(self, name: str) -> Choose:
        """Return the function that asks the people of an operator or game."""

    def notice(self, name: str) -> Notice:
        """Return the function that is called when the status of a game's player changes."""

    def starts(self, folder: Path, sessions: Sequence[OperatorSession]) -> None:
        """Announce what is about to be played, and the folder of its records."""

    def look(self) -> None:
        """Called ten times a second to read the counts. Raises StoppedError to end the experiment."""


def _say_nothing(text: str) -> None:
    pass


@dataclass(frozen=True)
class ExperimentResult:
    """Result of an experiment.

    Attributes:
        folder: the run folder, which contains the telemetry.
        groups: the results of each environment and each game.
        failures: a sentence for each operator that failed.
        stopped_by: what ended the experiment early: "SIGINT", "SIGTERM" or "page" if the user did,
            or "budget". None if it was not ended early.
        notes: sentences on workers whose reports differ from our counts, on charts or videos that
            could not be made, and on a budget that ended the experiment.
        spent: tokens, calls and cost, including interrupted episodes; None without a budget.
        warnings: a sentence for each language model that had too few decisions understood.
    """

    folder: Path
    groups: tuple[GroupResult, ...]
    failures: tuple[str, ...]
    stopped_by: str | None
    notes: tuple[str, ...]
    spent: Mapping[str, float] | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all operators, in the order of the groups."""
        return tuple(
            warning
            for group in self.groups
            for operator in group.operators
            for warning in operator.warnings
        )

    @property
    def exit_status(self) -> int:
        """Exit status: 130 after Ctrl-C, 143 after SIGTERM or a stop on the page, 1 for problems, else 0."""
        if self.stopped_by in ("SIGTERM", "page"):
            return 143
        if self.stopped_by == "SIGINT":
            return 130
        return 1 if self.stopped_by or self.failures or self.warnings else 0


@dataclass(frozen=True)
class Experiment:
    """Operators and games, and the episodes that they play. Validated on construction; nothing is started.

    Args:
        name: 1 to 60 letters, digits, ".", "_" and "-".
        operators: the operators and games. Each is compared with the first of the same environment,
            or as `comparisons` says.
        seeds: seeds of the episodes. Pass a list; an int or `ProceduralSeeds`, from which one seed
            per episode is derived; or `FixedSeeds`, where only the agents' randomness differs. The
            i-th episodes of all operators share a seed.
        episodes: number of episodes of each operator. Default: the length of a list of seeds.
        mode: "free", where each operator runs at its own speed, or "lockstep", where all step
            together.
        pace_s: minimum seconds from one step to the next.
        start_timeout_s, step_timeout_s: time limits for the replies to a reset and to a step. The
            default for a step is 30, or 600 for a language model and 3600 for a person.
        restarts: how often each operator is restarted after its worker died or did not answer. The
            episode counts as failed.
        success: minimum total reward of a successful episode, or a mapping from env_id to it.
            Success reported by a worker takes precedence.
        budget: limits for all operators together: "tokens", "calls" (answers of language models) and "cost",
            for example {"tokens": 1_000_000}. When one is used up the experiment stops; it can be resumed
            with a larger budget.
        min_understood: fraction of a language model's decisions, from 0 to 1, that must be understood. Below
            it there is a warning, and the exit status is 1.
        comparisons: "first" compares each operator with the first; "pairs" compares all pairs.
        video: number of episodes to film, starting with the first.

    Raises:
        TypeError, ValueError: for an invalid value, which the message names.
    """

    name: str
    operators: Sequence[AnyConfig]
    _: KW_ONLY
    seeds: SeedsLike
    episodes: int | None = None
    mode: str = "free"
    pace_s: float = 0.0
    start_timeout_s: float = 60.0
    step_timeout_s: float | None = None
    restarts: int = 2
    success: float | Mapping[str, float] | None = None
    budget: Mapping[str, float] | None = None
    min_understood: float = MIN_UNDERSTOOD
    comparisons: str = "first"
    video: int = 0
    episode_seeds: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                "name: expected 1 to 60 letters, digits, dots, underscores and hyphens, got "
                f"{self.name!r}"
            )
        object.__setattr__(self, "operators", _operators(self.operators))
        seeds = tuple(seeds_of(self.seeds, self.episodes))
        object.__setattr__(self, "episode_seeds", seeds)
        _one_of("mode", self.mode, MODES)
        _one_of("comparisons", self.comparisons, COMPARISONS)
        _number("pace_s", self.pace_s, 0.0)
        _number("start_timeout_s", self.start_timeout_s, 0.001)
        if self.step_timeout_s is not None:
            _number("step_timeout_s", self.step_timeout_s, 0.001)
        object.__setattr__(self, "budget", checked_budget(self.budget, self.operators))
        _number("min_understood", self.min_understood, 0.0)
        if self.min_understood > 1:
            raise ValueError(f"min_understood: expected at most 1, got {self.min_understood!r}")
        for name in ("restarts", "video"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name}: expected an int of at least 0, got {value!r}")
        by_env = self.success if isinstance(self.success, Mapping) else {"": self.success}
        for threshold in by_env.values():
            if threshold is not None:
                _number("success", threshold, -math.inf)

    def as_json(self) -> dict[str, Any]:
        """Return the experiment as JSON values, in the format of an experiment file."""
        success = self.success
        return {
            "name": self.name,
            "seeds": seeds_as_json(self.seeds),
            "episodes": len(self.episode_seeds),
            "mode": self.mode,
            "pace_s": self.pace_s,
            "start_timeout_s": self.start_timeout_s,
            "step_timeout_s": self.step_timeout_s,
            "restarts": self.restarts,
            "success": dict(success) if isinstance(success, Mapping) else success,
            "budget": None if self.budget is None else dict(self.budget),
            "min_understood": self.min_understood,
            "comparisons": self.comparisons,
            "video": self.video,
            "operators": [config.as_json() for config in self.operators],
        }

    def check(self) -> None:
        """Check the requirements of all operators without starting anything.

        Raises:
            ValueError, FileNotFoundError, ImportError: as in `OperatorLauncher.check`.
        """
        with OperatorLauncher() as launcher:
            for config in self.operators:
                launcher.check(config)

    def run(
        self,
        base: str | os.PathLike[str] = "runs",
        *,
        progress: bool = False,
        script: str | os.PathLike[str] | None = None,
        watching: ExperimentMonitor | None = None,
        resume: str | os.PathLike[str] | None = None,
        say: Callable[[str], None] = _say_nothing,
    ) -> ExperimentResult:
        """Play all episodes and return the result. Ctrl-C keeps the episodes that were played.

        Args:
            base: folder in which the run folder is created.
            progress: show a progress bar for each operator on stderr.
            script: file that defines the experiment; recorded together with the git state of its folder.
            watching: monitor that observes the experiment and may pause it. People then answer
                there instead of at the terminal, and no results.png is drawn.
            resume: folder of an earlier part of this experiment that was killed or stopped. Its episodes are
                not played again. All settings except `budget` must be the same.
            say: function called with a sentence on how many episodes were already played.

        Raises:
            ValueError, FileNotFoundError, ImportError: as in `check`, and for a folder that cannot
                be resumed. They are raised before anything is started or written.
            WrongStateError: if another process plays in the folder to resume.
            OSError: if a file cannot be written. All operators are ended first.
        """
        self.check()
        film = Film(self.video)
        with ExitStack() as stack:
            # Games are made before anything is started: one may not exist.
            episodes = [
                stack.enter_context(closing(self._episodes(config, film, watching)))
                for config in self.operators
            ]
            folder = stack.enter_context(ExperimentFolder(base, self.as_json(), script, resume))
            earlier = {} if resume is None else self._resumed(folder, film, say)
            spending = self._spending(earlier)
            launcher = stack.enter_context(
                OperatorLauncher(
                    folder.path,
                    telemetry_dir="telemetry",
                    log_dir="logs",
                    terminal=watching is None,
                )
            )
            # From here on, closing the stack ends the workers before it releases the folder.
            gate = self._gate() if watching is None else watching.gate(self._gate())
            sessions = self._sessions(episodes, folder, launcher, gate, watching, earlier, spending)
            if watching is not None:
                watching.starts(folder.path, sessions)
            with ExperimentProgress(sessions, shown=progress) as bars:
                show = bars.update if watching is None else watching.look
                stopped_by = play_all(sessions, gate, launcher.close, show)
            # Before the results: no worker writes to its log any more.
            launcher.close()
            # The page draws its own charts. matplotlib would keep fonts open for each thread that draws.
            draws = watching is None
            return _concluded(folder, film, sessions, stopped_by, spending, draws=draws)

    def _resumed(
        self, folder: ExperimentFolder, film: Film, say: Callable[[str], None]
    ) -> dict[str, PlayedPart]:
        earlier, n_episodes = {}, 0
        for config in self.operators:
            rounds = self._rounds(config)
            n_players = len(config.players) if isinstance(config, MultiAgentConfig) else 1
            run_id = folder.run_id(config.operator_id)
            part = earlier_part(folder.telemetry, run_id, rounds, n_players)
            earlier[config.operator_id] = part
            n_episodes += len(rounds)
        n_done = sum(part.n_done for part in earlier.values())
        folder.note_resume(n_done)
        film.leave_out(max(part.n_done for part in earlier.values()))
        say(f"resumed: {n_done} of {n_episodes} episodes were already played")
        return earlier

    def _spending(self, earlier: Mapping[str, PlayedPart]) -> Spending | None:
        if self.budget is None:
            return None
        spending = Spending(self.budget, self.operators)
        for part in earlier.values():
            for record in part.paid:
                spending.add(record)
        return spending

    def _gate(self) -> EpisodeGate:
        if self.mode == "free":
            return FreeGate(self.pace_s)
        return LockStepGate([config.operator_id for config in self.operators], self.pace_s)

    def _episodes(
        self, config: AnyConfig, film: Film, watching: ExperimentMonitor | None
    ) -> Episodes:
        name = config.operator_id
        return episodes_of(
            config,
            start_timeout_s=self.start_timeout_s,
            step_timeout_s=self.step_timeout_s,
            viewers=[film] if watching is None else [film, *watching.viewers],
            choose=None if watching is None else watching.choose(name),
            notice=ignore_notice if watching is None else watching.notice(name),
        )

    def _sessions(
        self,
        episodes: Sequence[Episodes],
        folder: ExperimentFolder,
        launcher: OperatorLauncher,
        gate: EpisodeGate,
        watching: ExperimentMonitor | None,
        earlier: Mapping[str, PlayedPart],
        spending: Spending | None,
    ) -> list[OperatorSession]:
        sessions = []
        for config, playing in zip(self.operators, episodes, strict=True):
            name, run_id = config.operator_id, folder.run_id(config.operator_id)
            part = earlier.get(name)
            session = OperatorSession(
                name,
                labels=labels_of(config),
                launch=launch_of(config, launcher, run_id, part.used if part else None),
                episodes=playing,
                rounds=self._rounds(config),
                gate=gate,
                folder=folder.telemetry,
                run_id=run_id,
                restarts=RestartBudget(self.restarts, within_s=math.inf),
                is_success=self._is_success(config.env_id),
                observer=None if watching is None else watching.observer(name),
                goes_on=part is not None,
                earlier=part,
                spending=spending,
            )
            sessions.append(session)
        return sessions

    def _rounds(self, config: AnyConfig) -> list[tuple[int, int, int | None]]:
        n_seatings = 1
        if isinstance(config, MultiAgentConfig) and config.seats == "rotate":
            n_seatings = len(config.players)  # each seed is played once in each seating
        agent_seeds = agent_seeds_of(self.seeds, len(self.episode_seeds))
        pairs = [
            pair
            for pair in zip(self.episode_seeds, agent_seeds, strict=True)
            for _ in range(n_seatings)
        ]
        return [(number, *pair) for number, pair in enumerate(pairs)]

    def _is_success(self, env_id: str | None) -> Callable[[float], bool] | None:
        success = self.success
        threshold = success.get(env_id or "") if isinstance(success, Mapping) else success
        return None if threshold is None else lambda reward: reward >= threshold


def _concluded(
    folder: ExperimentFolder,
    film: Film,
    sessions: Sequence[OperatorSession],
    stopped_by: str | None,
    spending: Spending | None,
    *,
    draws: bool,
) -> ExperimentResult:
    why = None if spending is None or stopped_by is not None else spending.reason
    stopped_by = stopped_by or (None if why is None else "budget")
    spent = None if spending is None else spending.as_json()
    n_steps = sum(session.n_steps for session in sessions)
    groups, failures, notes = folder.conclude(stopped_by, film, n_steps, draws=draws, spent=spent)
    contradicted = [s.contradiction for s in sessions if s.contradiction is not None]
    notes = (*contradicted, *notes) if why is None else (*contradicted, *notes, why)
    return ExperimentResult(folder.path, groups, failures, stopped_by, notes, spent)


def _operators(
    operators: Sequence[AnyConfig],
) -> tuple[AnyConfig, ...]:
    if isinstance(operators, (str, bytes, Mapping)) or not isinstance(operators, Sequence):
        raise TypeError(f"operators: expected a list of configs, got {operators!r}")
    if not operators:
        raise ValueError("operators: expected at least one, got none")
    taken: set[str] = set()
    for config in operators:
        if not isinstance(config, (OperatorConfig, MultiAgentConfig)):
            raise TypeError(
                f"operators: expected OperatorConfigs and MultiAgentConfigs, got {config!r}"
            )
        for operator_id in ids_of(config):
            if operator_id in taken:
                raise ValueError(
                    f"operators: several have the operator_id {operator_id!r}; give each a different one"
                )
            taken.add(operator_id)
    return tuple(operators)


def _one_of(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: expected {' or '.join(choices)}, got {value!r}")


def _number(name: str, value: object, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise ValueError(f"{name}: expected a number of at least {least:g}, got {value!r}")
