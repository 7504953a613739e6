"""An experiment: operators that play the same episodes, and its outcome."""

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
    """What follows an experiment while it is played, and may hold it: a page, in place of a terminal.

    What is played, and written down, is the same without it.
    """

    @property
    def viewers(self) -> Sequence[Viewer]:
        """Who wants pictures."""

    def gate(self, inner: EpisodeGate) -> EpisodeGate:
        """Return the gate that operators pass in place of the experiment's own, which it has to pass on."""

    def observer(self, name: str) -> SessionObserver:
        """Return what follows the episodes of an operator or game."""

    def choose(self, name: str) -> Choose:
        """Return what asks the people of an operator or game."""

    def notice(self, name: str) -> Notice:
        """Return what is called when a player of a game has something else to do."""

    def starts(self, folder: Path, sessions: Sequence[OperatorSession]) -> None:
        """Note what is about to be played, and where it is written."""

    def look(self) -> None:
        """Look at the counts, ten times a second; StoppedError ends the experiment."""


def _say_nothing(text: str) -> None:
    pass


@dataclass(frozen=True)
class ExperimentResult:
    """The outcome of an experiment.

    Attributes:
        folder: of the run, with its telemetry.
        groups: the results of each environment and each game.
        failures: a sentence for each operator that failed.
        stopped_by: "SIGINT", "SIGTERM" or "page" if the user ended it early; "budget"; else None.
        notes: a sentence for each operator whose worker contradicts what was counted; what could not be
            drawn, and why; why the budget ended the experiment.
        spent: tokens, calls and cost, of interrupted episodes too; None without a budget.
        warnings: a sentence for each language model of whose decisions too few were understood.
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
            said for group in self.groups for one in group.operators for said in one.warnings
        )

    @property
    def exit_status(self) -> int:
        """The exit status: 130 after Ctrl-C, 143 after SIGTERM, else 1 if not all is well, or 0."""
        if self.stopped_by in ("SIGTERM", "page"):
            return 143
        if self.stopped_by == "SIGINT":
            return 130
        return 1 if self.stopped_by or self.failures or self.warnings else 0


@dataclass(frozen=True)
class Experiment:
    """Operators and games, and the episodes that each of them plays; checked, and nothing is started.

    Args:
        name: 1 to 60 letters, digits, ".", "_" and "-".
        operators: compared with others of the same environment, the first of each with the rest.
        seeds: of the episodes: a list; an int or `ProceduralSeeds`, from which one is derived for each; or
            `FixedSeeds`, where only agents draw anew. The i-th episodes of all operators have the same.
        episodes: of each operator; default as many as there are seeds in a list.
        mode: "free", where each goes on at its own speed, or "lockstep", where all take their steps together.
        pace_s: seconds from a step to the next, at least.
        start_timeout_s, step_timeout_s: for the reply to a reset, and to a step; default of the latter 30,
            for a language model 600, and for a person 3600.
        restarts: of each operator, after its worker died or did not answer; the episode counts as failed.
        success: total reward from which an episode is one, also by env_id; what a worker says goes before it.
        budget: what all operators together may take, of "tokens", "calls" (answers of language models) and
            "cost", such as {"tokens": 1_000_000}. Once it is used up the experiment stops, and can be resumed
            with more.
        min_understood: part of a language model's decisions, from 0 to 1, that has to be understood; of less
            there is a warning, and the exit status is 1.
        comparisons: "first", of each operator with the first, or "pairs", of each with each.
        video: how many episodes to film, the first ones, in which frames are asked for.

    Raises:
        TypeError, ValueError: for a value that no experiment can have; one sentence, which names it.
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
        """Return the experiment as JSON values, as a file of one has them."""
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
        """Raise if an operator lacks what it needs, in one sentence; start nothing.

        Raises:
            ValueError, FileNotFoundError, ImportError: as `OperatorLauncher.check`.
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
        """Play all episodes, and return the outcome; Ctrl-C keeps those that were played.

        Args:
            base: where to make the folder of the run.
            progress: whether to draw a bar for each operator, on stderr.
            script: file that defines the experiment; noted, with the state of git of its folder.
            watching: follows and holds it; people then answer there, and not at the terminal, and no
                results.png is drawn.
            resume: folder of an earlier part of this experiment, which was killed or stopped: episodes that
                were played there are not played again. Its settings have to be the same but for `budget`.
            say: called with a sentence, once it is known how many these are.

        Raises:
            ValueError, FileNotFoundError, ImportError: as `check`, and for a folder that cannot be resumed,
                before anything is started or written.
            WrongStateError: if another process plays in the folder to resume.
            OSError: if something cannot be written; all operators are ended before.
        """
        self.check()
        film = Film(self.video)
        with ExitStack() as stack:
            # Before anything is started, as a game may not exist.
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
            gate = self._gate() if watching is None else watching.gate(self._gate())
            sessions = self._sessions(episodes, folder, launcher, gate, watching, earlier, spending)
            if watching is not None:
                watching.starts(folder.path, sessions)
            with ExperimentProgress(sessions, shown=progress) as bars:
                show = bars.update if watching is None else watching.look
                stopped_by = play_all(sessions, gate, launcher.close, show)
            launcher.close()
            # A page draws its own; matplotlib would keep open fonts for each thread that has drawn.
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
            one = earlier_part(folder.telemetry, run_id, rounds, n_players)
            earlier[config.operator_id] = one
            n_episodes += len(rounds)
        n_done = sum(one.n_done for one in earlier.values())
        folder.note_resume(n_done)
        film.leave_out(max(one.n_done for one in earlier.values()))
        say(f"resumed: {n_done} of {n_episodes} episodes were already played")
        return earlier

    def _spending(self, earlier: Mapping[str, PlayedPart]) -> Spending | None:
        if self.budget is None:
            return None
        spending = Spending(self.budget, self.operators)
        for one in earlier.values():
            for record in one.paid:
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
        for config, one in zip(self.operators, episodes, strict=True):
            name, run_id = config.operator_id, folder.run_id(config.operator_id)
            part = earlier.get(name)
            session = OperatorSession(
                name,
                labels=labels_of(config),
                launch=launch_of(config, launcher, run_id, part.used if part else None),
                episodes=one,
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
            n_seatings = len(config.players)  # each seed once in each seating
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
    contradicted = [one.contradiction for one in sessions if one.contradiction is not None]
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
                    f"operators: two have the operator_id {operator_id!r}; give each its own"
                )
            taken.add(operator_id)
    return tuple(operators)


def _one_of(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: expected {' or '.join(choices)}, got {value!r}")


def _number(name: str, value: object, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise ValueError(f"{name}: expected a number of at least {least:g}, got {value!r}")
