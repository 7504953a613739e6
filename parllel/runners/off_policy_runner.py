"""Off-policy learning from a replay that the sampler fills."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from parllel.algos.learner_group import LearnerGroup
from parllel.algos.off_policy_algorithm import OffPolicyAlgorithm
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.logging.logger import Logger
from parllel.replays.replay import Replay
from parllel.runners.asynchronous_runner import BatchAges
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.matching_parts import check_published_agent
from parllel.runners.matching_replay import (
    check_learning_starts,
    check_replay,
    check_shared_replay,
    claim_replay,
    release_replay,
)
from parllel.runners.runner import Runner
from parllel.runners.saved_parts import REPLAY
from parllel.runners.update_means import UpdateMeans
from parllel.runs.names import suggest_names
from parllel.runs.run_result import RunResult
from parllel.samplers.publishing_sampler import PublishingSampler
from parllel.samplers.sampler import Sampler
from parllel.system.compilation import seconds_compiling
from parllel.types import BatchSpec, State


class OffPolicyCycle(LearningCycle):
    """Adds each batch to a replay, and takes gradient steps with batches that are drawn from it.

    Args:
        sampler, algorithm: as for LearningCycle. A PublishingSampler receives the agent's weights and
            exploration before each batch.
        replay: the replay to fill and to draw from.
        replay_ratio: gradient steps per environment step.
        learning_starts: environment steps in the replay before the first gradient step.

    Attributes:
        n_updates: gradient steps since the start of the run.
        refilling_since: the environment steps at which the replay was empty last.
    """

    stages = ("inserting", "drawing")
    algorithm: OffPolicyAlgorithm

    def __init__(
        self,
        sampler: Sampler,
        algorithm: OffPolicyAlgorithm,
        replay: Replay,
        replay_ratio: float,
        learning_starts: int,
    ) -> None:
        super().__init__(sampler, algorithm)
        # The sampler, if it publishes weights.
        self._publisher = sampler if isinstance(sampler, PublishingSampler) else None
        if self._publisher is not None:
            check_published_agent(self._publisher, algorithm)
        self.replay = replay
        self.learning_starts = learning_starts
        # The fraction that was meant and not the binary number next to it: after 10 steps at a ratio of 0.1,
        # or 3 steps at 1 / 3, one update is due.
        self._ratio = Fraction(replay_ratio).limit_denominator(10**9)
        self._owed = Fraction(0)  # updates
        self.n_updates = 0
        self.refilling_since = 0
        self._elapsed_steps = 0  # when `learn` was called last
        # With several learners: together with them, whether all can draw.
        self.learners: LearnerGroup | None = None
        self._may_draw = False
        self._writes_into_replay = getattr(sampler, "samples", None) is replay.samples
        self._row = UpdateMeans()
        self._ages = BatchAges()
        self._seconds = dict.fromkeys(self.stages, 0.0)

    def sample(
        self, elapsed_steps: int, *, timed: bool
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Set the exploration, publish it and the weights if the sampler needs that, and return a batch."""
        self.algorithm.before_sampling(elapsed_steps)
        if self._publisher is not None:
            self._publisher.publish()
        return super().sample(elapsed_steps, timed=timed)

    def learn(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Add the batch to the replay, take the gradient steps that are due, and return their diagnostics."""
        began = time.perf_counter()
        # Its own buffer, even if the sampler returns a part of it.
        self.replay.add(self.replay.samples if self._writes_into_replay else samples)
        self._seconds["inserting"] += time.perf_counter() - began
        means = UpdateMeans()
        # Those of all learners, if there are several.
        steps, self._elapsed_steps = elapsed_steps - self._elapsed_steps, elapsed_steps
        for _ in range(self._updates_due(elapsed_steps, steps)):
            batch = self._draw()
            diagnostics = self.algorithm.optimize_agent(elapsed_steps, batch)
            means.add(diagnostics)
            self._row.add(diagnostics)
            self.n_updates += 1
        return means

    def _updates_due(self, elapsed_steps: int, steps: int) -> int:
        """Return the number of gradient steps to take now, given the steps of the last batch."""
        beyond = elapsed_steps - (self.refilling_since + self.learning_starts)
        if beyond <= 0 or not self._can_draw():
            return 0
        # Steps before the start of learning owe nothing, so the number of updates does not depend on the size
        # of batches.
        self._owed += self._ratio * min(steps, beyond)
        due = math.floor(self._owed)
        self._owed -= due
        return due

    def _can_draw(self) -> bool:
        """Return whether something can be drawn, by all learners, which must take as many steps."""
        if not self._may_draw:
            stored = np.array([self.replay.n_stored])
            counts = [stored] if self.learners is None else self.learners.gather(stored)
            self._may_draw = bool(min(counts) > 0)
        return self._may_draw

    def _draw(self) -> Any:
        began, compiled = time.perf_counter(), seconds_compiling()
        batch = self.replay.sample()
        compiling = seconds_compiling() - compiled
        self._seconds["drawing"] += time.perf_counter() - began - compiling
        return batch

    def take_seconds(self) -> Mapping[str, float]:
        """Return the seconds of inserting into the replay and drawing from it since the last call."""
        seconds = self._seconds
        self._seconds = dict.fromkeys(self.stages, 0.0)
        return seconds

    def finish(self) -> None:
        """Record the staleness of the batch of a PublishingSampler."""
        if self._publisher is not None:
            self._ages.add(self._publisher)

    def row_diagnostics(self, last: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the means over the gradient steps since the last row."""
        row, self._row = self._row, UpdateMeans()
        return row

    def log(self, logger: Logger) -> None:
        """Log what the replay holds, the number of gradient steps, and the age of published weights."""
        logger.log_value("replay/stored", self.replay.n_stored)
        logger.log_value("replay/updates", self.n_updates)
        if self._publisher is not None:
            self._ages.log(logger)

    def state(self, *, replay: bool = True) -> State:
        """Return the counters and the diagnostics for the next row."""
        learning = {
            "owed": [self._owed.numerator, self._owed.denominator],
            "n_updates": self.n_updates,
            "refilling_since": self.refilling_since,
            "row": self._row.state(),
        }
        return {"off_policy": learning, **({} if self._publisher is None else self._ages.state())}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Without a replay in it, learning starts anew."""
        learning = state["off_policy"]
        self._owed = Fraction(*(int(number) for number in learning["owed"]))
        self.n_updates = int(learning["n_updates"])
        filled = REPLAY in state["parts"]
        since = learning["refilling_since"] if filled else state["elapsed_steps"]
        self.refilling_since = int(since)
        self._elapsed_steps = int(state["elapsed_steps"])
        self._may_draw = False
        self._row.load_state(learning["row"])
        if self._publisher is not None and "asynchronous" in state:
            self._ages.load_state(state)


class OffPolicyRunner(Runner):
    """Fills a replay with the batches of a sampler, and trains an algorithm with what is drawn from it.

    After each batch of the sampler, the runner takes `replay_ratio` gradient steps per environment step; the
    remainder is carried over to the next batch. After N environment steps, the run has taken
    `floor(replay_ratio * (N - learning_starts))` gradient steps, whatever the size of the batches.

    A sampler in this process writes into the replay, without a copy. With an `AsynchronousSampler`, the next
    batch is sampled during the gradient steps, and batches are copied into the replay. The weights and the
    exploration of the algorithm's agent are published before each batch.

    With several `learners`, each has a replay, which holds the steps of its own environments, and draws its
    share of each batch. `replay_ratio` and `learning_starts` count the steps of all.

    Args:
        batch_spec, sampler: as for `Runner`. Unless the sampler works in another process, it must
            have been built with the replay's `samples`.
        algorithm: an OffPolicyAlgorithm.
        replay: the replay to fill. It belongs to this runner until the run has ended.
        replay_ratio: gradient steps per environment step, such as 1 for SAC or 0.25 for DQN.
        learning_starts: number of environment steps to sample before the first gradient step.
        save_replay: whether checkpoints include the replay. A run that is resumed without it samples
            `learning_starts` steps before it learns again. The checkpoint of the best evaluation never
            includes it.
        arguments: further arguments of `Runner`.

    In addition to the values of other runners, each row has `replay/stored` (items that can be drawn),
    `replay/updates` (gradient steps since the start), `time/inserting_s` and `time/drawing_s`; rows of a
    PublishingSampler have the values of AsynchronousRunner. Diagnostics are means over the gradient steps
    since the last row; callbacks receive the means over the steps after one batch, which are empty if none
    was due.

    Raises:
        TypeError: if the algorithm is not off-policy, or learns from another kind of batches than the replay
            draws; with several learners, if the replay is not a UniformReplay.
        ValueError: if `replay_ratio` is not positive, `learning_starts` exceeds the run or the replay, the
            sampler fills another buffer, or another runner uses the replay; and as for `Runner`.
    """

    replay: Replay

    @suggest_names(Runner.__init__)
    def __init__(
        self,
        batch_spec: BatchSpec,
        sampler: Sampler,
        algorithm: OffPolicyAlgorithm,
        replay: Replay,
        *,
        replay_ratio: float,
        learning_starts: int,
        save_replay: bool = True,
        **arguments: Any,
    ) -> None:
        check_replay(sampler, algorithm, replay)
        if not 0 < replay_ratio < math.inf:
            raise ValueError(
                f"replay_ratio: expected a positive number of gradient steps per environment step, got "
                f"{replay_ratio}"
            )
        self.replay = replay
        self.replay_ratio = replay_ratio
        self.learning_starts = learning_starts
        self.save_replay = save_replay
        super().__init__(batch_spec, sampler, algorithm, **arguments)
        if self.learners is not None:
            check_shared_replay(replay)
            self._cycle.learners = self.learners
        check_learning_starts(learning_starts, self.n_steps, replay, self.cycle.n_learners)
        # Last: a runner that was refused must not keep it.
        claim_replay(replay, self)

    def make_cycle(self, sampler: Sampler, algorithm: Any) -> OffPolicyCycle:
        """Return the cycle, which holds the replay too."""
        self._cycle = OffPolicyCycle(
            sampler, algorithm, self.replay, self.replay_ratio, self.learning_starts
        )
        return self._cycle

    def run(self) -> RunResult:
        """Train, write a final checkpoint, and return the result. See `Runner.run`."""
        claim_replay(self.replay, self)
        try:
            return super().run()
        finally:
            release_replay(self)

    def _start(self) -> None:
        super()._start()
        step, again = self.result.elapsed_steps, self._cycle.refilling_since
        if 0 < step == again:
            self.logger.warn(
                f"the checkpoint of step {step:,} has no replay: {self.learning_starts:,} environment steps "
                f"are sampled before learning goes on at step {step + self.learning_starts:,}"
            )

    def state(self) -> State:
        """Return the states of all parts, the replay included if `save_replay`, and the counters."""
        return self._state(replay=self.save_replay)

    def state_to_show(self) -> State:
        """Return the state without the replay."""
        return self._state(replay=False)
