"""Session of one operator or game: plays all its episodes, restarts its worker, writes its telemetry.

the session's thread    play: launch, episodes, restarts, telemetry
any thread              close: ends the worker, so that a read in `play` returns
the main thread         reads the counts to show them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from parllel.distributed.operators.experiments.earlier_part import PlayedPart, note_interrupted
from parllel.distributed.operators.experiments.episode_gate import (
    EpisodeAbandonedError,
    EpisodeGate,
    StoppedError,
)
from parllel.distributed.operators.experiments.episode_outcome import EpisodeOutcome
from parllel.distributed.operators.experiments.spending import Spending
from parllel.distributed.operators.experiments.telemetry import Telemetry
from parllel.distributed.operators.workers.worker_agent import COUNTS
from parllel.errors import ClosedError, ParllelError, RestartsUsedUpError
from parllel.system.processes.restart_budget import RestartBudget

Record = dict[str, Any]
_MAX_CHARACTERS = 2000  # of a failure, which may quote what a worker wrote


class Episodes(Protocol):
    """Plays one episode: SingleEpisodes or GameEpisodes."""

    def play(
        self,
        handle: Any,
        episode: int,
        seed: int,
        *,
        agent_seed: int | None,
        before_step: Callable[[], None],
        record_step: Callable[[Record], None],
    ) -> list[EpisodeOutcome]:
        """Play an episode and return the outcome of each player."""

    def close(self) -> None:
        """Close resources in this process."""


class SessionObserver(Protocol):
    """Follows a session. Called by its thread."""

    def begins(self, episode: int, seed: int) -> None:
        """Called when an episode starts."""

    def stepped(self, record: Record) -> None:
        """Called after a step, or one player's part in it, with the fields of its record."""

    def ended(self, outcomes: list[EpisodeOutcome]) -> None:
        """Called with the outcomes of an episode, unless it was abandoned."""


class OperatorSession:
    """Plays all episodes of one operator or game, or until its restarts are used up.

    Args:
        name: name of the operator or game.
        labels: fields common to all its records, such as `env_id`.
        launch: function that starts the worker or workers.
        episodes: object that plays one episode. The session closes it.
        rounds: iterable with one item per episode: its number, the environment's seed, and the seed
            from which the agents' seeds are derived (None for the environment's seed). The next
            item is taken after the previous episode has ended, and taking it may block.
        gate: gate that the session passes before each episode and step.
        folder: folder for the telemetry.
        run_id: run id of the telemetry.
        restarts: maximum number of restarts of a worker that died or hangs.
        is_success: function that returns whether a total reward is a success, or None if that is
            unknown. Used if the worker does not report success.
        observer: called at the start of each episode, after each step, and at the end.
        goes_on: whether telemetry of this session may already exist. If so, records are appended.
        earlier: the rounds that were already played, which are skipped.
        spending: adds up costs and may stop all sessions; None without a budget.

    Attributes:
        n_done, n_failed: the numbers of episodes so far.
        n_steps: the number of steps so far.
    """

    def __init__(
        self,
        name: str,
        *,
        labels: Record,
        launch: Callable[[], Any],
        episodes: Episodes,
        rounds: Iterable[tuple[int, int, int | None]],
        gate: EpisodeGate,
        folder: Path,
        run_id: str,
        restarts: RestartBudget,
        is_success: Callable[[float], bool] | None = None,
        observer: SessionObserver | None = None,
        goes_on: bool = False,
        earlier: PlayedPart | None = None,
        spending: Spending | None = None,
    ) -> None:
        self.name = name
        earlier = earlier or PlayedPart()
        self._n_earlier, self._lost = earlier.n_done, earlier.lost
        self._spending = spending
        self._rounds, self._observer, self._goes_on = rounds, observer, goes_on
        self._labels, self._launch, self._episodes = labels, launch, episodes
        self._gate, self._restarts, self._is_success = gate, restarts, is_success
        self._folder, self._run_id = folder, run_id
        self._handle: Any = None  # set by `play`, read by `close` in any thread
        self._n_restarts = earlier.n_restarts
        # Restarts of the earlier part count towards the same budget.
        for _ in range(earlier.n_restarts):
            restarts.restart("before the experiment was resumed")
        self.n_done, self.n_failed = earlier.n_done, earlier.n_failed
        self.n_steps = earlier.n_steps
        self._n_contradicted, self._contradiction = 0, ""
        # Over the episodes that ended, of the first player.
        self._reward_sum, self._n_ended = sum(earlier.rewards), len(earlier.rewards)

    @property
    def mean_reward(self) -> float | None:
        """Mean total reward of the ended episodes, or None if there are none.

        In a game, the mean is that of its first player.
        """
        return self._reward_sum / self._n_ended if self._n_ended else None

    @property
    def contradiction(self) -> str | None:
        """A sentence on values reported by the worker that differ from our counts, or None."""
        if not self._n_contradicted:
            return None
        return (
            f"{self.name} ({self._labels.get('env_id')}): {self._n_contradicted} of {self.n_done} episodes "
            f"contradicted: {self._contradiction}"
        )

    @property
    def n_episodes(self) -> int:
        """The number of episodes to play; 0 if unknown."""
        return len(self._rounds) if isinstance(self._rounds, Sized) else 0

    @property
    def worker_died(self) -> bool:
        """Whether a worker was started and has ended by itself. For a game, any of its workers."""
        handle = self._handle
        return handle is not None and not handle.is_running

    @property
    def lost_operators(self) -> list[str]:
        """Ids of the operators, or players of the game, whose workers have ended by themselves."""
        handle = self._handle
        handles = getattr(handle, "player_handles", {self.name: handle}).values()
        return [h.operator_id for h in handles if h is not None and not h.is_running]

    def play(self) -> None:
        """Play all episodes.

        Raises:
            OSError: if telemetry cannot be written.
            StoppedError: if the experiment is being stopped.
            Exception: for a bug in this package.
        """
        try:
            with Telemetry(self._folder, self._run_id, goes_on=self._goes_on) as telemetry:
                lost = self._lost
                for number, seed, agent_seed in self._rounds:
                    if number < self._n_earlier:
                        # Passed nevertheless: in lock-step, other operators may still have to play it.
                        self._gate.begin_episode(self.name)
                        self._gate.end_episode(self.name)
                        continue
                    # Only now, not at once after the loss: there may be no further episode.
                    if lost and not self._start_again(lost):
                        return
                    self._gate.begin_episode(self.name)
                    lost = self._play_one(telemetry, number, seed, agent_seed)
                    self._gate.end_episode(self.name)
        except ClosedError:
            # `close` has ended the worker.
            raise StoppedError from None
        finally:
            # The gate first: others may be waiting for this operator, and ending the worker takes time.
            self._gate.leave(self.name)
            self.close()
            self._episodes.close()

    def close(self) -> None:
        """End the worker. Idempotent; may be called from any thread."""
        # Read only once: `play` resets it when the worker is lost.
        handle = self._handle
        if handle is not None:
            handle.close()

    # ------------------------------------------------------------------ one episode

    def _play_one(
        self, telemetry: Telemetry, number: int, seed: int, agent_seed: int | None
    ) -> str | None:
        """Play and record an episode. Returns why the worker was lost, if it was."""
        labels = {**self._labels, "episode": number, "seed": seed}
        if agent_seed is not None:
            labels["agent_seed"] = agent_seed
        latencies: list[float] = []

        def record_step(record: Record) -> None:
            latencies.append(record.get("latency_s") or 0.0)
            self._note_step(telemetry, labels, record)

        if self._observer is not None:
            self._observer.begins(number, seed)
        try:
            outcomes = self._outcomes(number, seed, agent_seed, record_step)
        except EpisodeAbandonedError:
            return None  # its steps stay in the telemetry, without a record of an episode
        if any(outcome.status != "ended" for outcome in outcomes):
            # A failure while everything is being stopped is a consequence, not a failure of the operator.
            try:
                self._gate.pause(0.0)
            except StoppedError:
                self._note_unplayed(labels, outcomes)
                raise
        for outcome in outcomes:
            self._note(telemetry, labels, outcome, sum(latencies))
        contradictions = [text for outcome in outcomes for text in outcome.contradictions]
        if contradictions:
            self._n_contradicted += 1
            self._contradiction = self._contradiction or contradictions[0]
        self.n_done += 1
        if all(outcome.status == "ended" for outcome in outcomes):
            self._n_ended += 1
            self._reward_sum += outcomes[0].total_reward
        else:
            self.n_failed += 1
        lost = [str(outcome.failure) for outcome in outcomes if outcome.lost]
        if lost:
            # The other players of a game end too: all start again together. After the records, as ending a
            # hanging worker takes its grace period.
            self.close()
            self._handle = None
        if self._observer is not None:
            self._observer.ended(outcomes)
        return lost[0] if lost else None

    def _outcomes(
        self,
        number: int,
        seed: int,
        agent_seed: int | None,
        record_step: Callable[[Record], None],
    ) -> list[EpisodeOutcome]:
        before_step: Callable[[], None] = partial(self._gate.before_step, self.name)
        if self._spending is not None:
            self._spending.check(self._gate)
            before_step = self._before_paid_step
        if self._handle is None:
            try:
                self._handle = self._launch()
            except (ParllelError, OSError) as error:
                reason = f"could not be started: {' '.join(str(error).split())}"
                return [EpisodeOutcome("failed", 0.0, 0, failure=reason, lost=True)]
            # `close` may have been called meanwhile, before there was a worker to end.
            self._gate.pause(0.0)
        return self._episodes.play(
            self._handle,
            number,
            seed,
            agent_seed=agent_seed,
            before_step=before_step,
            record_step=record_step,
        )

    def _note_step(self, telemetry: Telemetry, labels: Record, record: Record) -> None:
        self.n_steps += 1
        telemetry.step({**labels, **record})
        if self._spending is not None:
            self._spending.add({**labels, **record})
        if self._observer is not None:
            self._observer.stepped(record)

    def _before_paid_step(self) -> None:
        assert self._spending is not None
        # Checked again after waiting at the gate: the other operators spend meanwhile.
        self._spending.check(self._gate)
        self._gate.before_step(self.name)
        self._spending.check(self._gate)

    def _note(
        self, telemetry: Telemetry, labels: Record, outcome: EpisodeOutcome, latency_s: float
    ) -> None:
        ended = outcome.status == "ended"
        success = outcome.success
        if success is None and ended and self._is_success is not None:
            success = self._is_success(outcome.total_reward)
        record: Record = dict(labels)
        if outcome.operator_id is not None:
            record.update(operator_id=outcome.operator_id, player_id=outcome.player_id)
        record.update(
            status=outcome.status,
            total_reward=outcome.total_reward,
            episode_length=outcome.episode_length,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            success=success,
            restarts=self._n_restarts,
            latency_s=latency_s,
        )
        if outcome.failure is not None:
            record["failure"] = outcome.failure[:_MAX_CHARACTERS]
        if outcome.lost:
            record["lost"] = True
        record.update(outcome.counts)
        if outcome.unplayed:
            record["unplayed"] = outcome.unplayed
            if self._spending is not None:
                self._spending.add({**record, **dict.fromkeys(COUNTS), **outcome.unplayed})
        if outcome.contradictions:
            record["contradictions"] = list(outcome.contradictions)
        telemetry.episode(record)

    def _note_unplayed(self, labels: Record, outcomes: list[EpisodeOutcome]) -> None:
        for outcome in outcomes:
            if outcome.unplayed:
                record = {**labels, **outcome.unplayed}
                if outcome.operator_id is not None:
                    record["operator_id"] = outcome.operator_id
                note_interrupted(self._folder, self._run_id, record)
                if self._spending is not None:
                    self._spending.add(record)

    def _start_again(self, reason: str) -> bool:
        """Use a restart and wait for the pause that it asks for. Returns False if none is left."""
        try:
            pause_s = self._restarts.restart(reason)
        except RestartsUsedUpError:
            return False
        self._n_restarts += 1
        self._gate.pause(pause_s)
        return True
