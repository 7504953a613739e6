"""Evaluation of an agent on whole episodes, without effect on training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from parllel.agents.handler import Handler
from parllel.buffers.batches import count_batches, moving
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_asarray, buffer_rotate
from parllel.cages.cage_interface import CageInterface
from parllel.cages.traj_info import TrajInfo
from parllel.errors import EpisodeTooLongError
from parllel.samplers.batch_state import NO_STATE, count_unsaved
from parllel.samplers.cage_columns import CageColumns, EnvGroups
from parllel.samplers.part_checks import (
    check_actions,
    check_handler,
    check_samples,
    check_transforms,
    claim_parts,
    release_parts,
)
from parllel.samplers.sampler import Sampler
from parllel.transforms.final_chain import FinalChain, FinalTransforms, check_finals_are_known
from parllel.transforms.transform import StepTransform
from parllel.types import BatchSpec, State


class EvalSampler(Sampler):
    """Plays a fixed number of episodes with the agent in eval mode.

    Each environment plays a quota of episodes, and its further episodes do not count. Taking the
    first N episodes that end in any environment would favour short ones. An episode whose process died and
    was restarted does not count either. The statistics of the step
    transforms are used but not updated.

    Args:
        cages: separate cages for the evaluation, with automatic resets.
        handler: the handler of the agent being trained.
        samples: a separate buffer for the evaluation, [1, B].
        n_episodes: total number of episodes; at least one per environment.
        step_transforms: the step transforms used in training, or at least those that make the
            agent's inputs.
        max_steps: limit for the steps of one environment in one evaluation.

    Attributes:
        quotas: number of episodes that count, [B] int; may be changed between evaluations.
        watch: function called before each step, while the environments still show the state that
            the agent acts on; or None.

    Raises:
        ValueError: if there are fewer episodes than environments, sizes do not fit together, or
            `max_steps` is less than one. Also if `step_transforms` do not make the fields that the
            agent sees in training; this is checked once the handler is bound to the training
            samples.
        TypeError: if a transform that makes the agent's inputs has no `transform_final`.
        EpisodeTooLongError: from `collect_batch`, after `max_steps` steps.
    """

    def __init__(
        self,
        cages: Sequence[CageInterface],
        handler: Handler,
        samples: Samples,
        n_episodes: int,
        step_transforms: Sequence[StepTransform] = (),
        *,
        max_steps: int = 1_000_000,
    ) -> None:
        B = sum(cage.n for cage in cages)
        self._cages = CageColumns(cages, B, reset_automatically=True)
        if max_steps < 1:
            raise ValueError(f"max_steps: expected at least 1, got {max_steps}")
        # bool is refused, as True would count as 1.
        if isinstance(n_episodes, bool) or not isinstance(n_episodes, (int, np.integer)):
            raise ValueError(f"n_episodes: expected an int of at least {B}, got {n_episodes!r}")
        if n_episodes < B:
            raise ValueError(f"n_episodes: expected one per environment ({B}), got {n_episodes}")
        check_samples(samples, BatchSpec(1, B))
        # The cages would stay at the first batch, and the agent would see rows without observations.
        if moving(buffer_arrays(samples)):
            raise ValueError(
                f"samples: expected a buffer of one batch for an evaluation, got "
                f"{count_batches(buffer_arrays(samples))}; allocate it without n_batches and switching"
            )
        check_handler(handler)
        check_actions(handler, cages[0])
        self.handler = handler
        self.samples = samples
        self.step_transforms = list(step_transforms)
        check_transforms(self.step_transforms)
        check_finals_are_known(samples, self.step_transforms)
        self._training: Samples | None = None
        self._as_seen = FinalTransforms(self.step_transforms)
        if handler.samples is not None:
            self.compare_with(handler.samples)
        self.quotas = np.full(B, n_episodes // B)
        self.quotas[: n_episodes % B] += 1  # the first environments play the remainder
        self.watch: Callable[[], None] | None = None
        self._max_steps = max_steps
        self._evaluations = 0
        # Whether the environments were reset, here or in the loaded run.
        self._started = False
        self._unsaved: dict[str, int] = {}
        claim_parts(self, None, samples)
        try:
            self._cages.bind(samples)
        except BaseException:
            release_parts(self)
            raise

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Play the episodes and return them. The samples hold only the last step."""
        # Before anything is written: a fork of this process has the same buffer, in shared memory.
        self._cages.check_open()
        if self.handler.samples is not None:
            self.compare_with(self.handler.samples)
        self._evaluations += 1
        self._started = True
        self.handler.eval_mode()
        try:
            self.handler.reset()
            self._cages.restart_dead()
            self._cages.reset(0, all_envs=True)
            self._cages.completed_trajs()  # drops episodes of an evaluation that failed
            self._cages.crashes()
            played: list[list[TrajInfo]] = [[] for _ in self.quotas]
            for _ in range(self._max_steps):
                if self.watch is not None:
                    self.watch()
                self._step(self._busy(played), played)
                if not self._unfinished(played):
                    return self.samples, self._counted(played)
            raise EpisodeTooLongError(
                f"evaluation: environments {self._unfinished(played)} have not played their "
                f"episodes after {self._max_steps} steps; raise max_steps or limit the episodes"
            )
        finally:
            # Also after an error, or training would continue in eval mode.
            self.handler.sample_mode()

    def compare_with(self, training: Samples) -> None:
        """Select the step transforms that make the agent's inputs in training.

        training: the samples that the agent learns from. If the handler is bound to samples, `collect_batch`
            calls this with them.

        Raises:
            ValueError: if `step_transforms` do not make these inputs.
        """
        if training is self._training:  # already compared; this is called in every evaluation
            return
        chain = FinalChain(training, self.step_transforms)
        chain.check_complete()
        self._training, self._as_seen = training, chain.as_seen

    @property
    def as_seen(self) -> FinalTransforms:
        """The transforms from observations to the agent's inputs in evaluations, without any samples."""
        if self.handler.samples is not None:
            self.compare_with(self.handler.samples)
        return self._as_seen

    def _step(
        self, busy: list[tuple[CageInterface, EnvGroups]], played: list[list[TrajInfo]]
    ) -> None:
        observation = buffer_asarray(self.samples.env.observation[0])
        # With `transform_final`, as `transform_step` would write fields that these samples may lack.
        action = self.handler.act(self._as_seen(observation), slice(0, len(played)))
        # Row 0 is the only row: an evaluation keeps nothing but its episodes.
        self.samples.agent.action[0] = action
        # All are started before any is finished, so that cages in other processes step in parallel.
        for _, groups in busy:
            groups.start_row(0)
        for _, groups in busy:
            groups.finish_row()
        done = np.asarray(self.samples.env.done)[0]
        for cage, groups in busy:
            # A cage returns episodes in the order of its columns, at most one per column and step.
            columns = groups.columns
            ended = [b for b in range(columns.start, columns.stop) if done[b]]
            trajs = cage.collect_completed_trajs() if ended else []
            if ended and cage.restarts is not None:
                ended = self._without_crashed(cage, ended)
            for b, traj in zip(ended, trajs, strict=True):
                played[b].append(traj)
            if ended:  # discarded, or they would accumulate in the cage
                cage.collect_final_observations(truncated_only=True)
        if done.any():
            self.handler.reset_one(np.flatnonzero(done))
        # Moves the observation in row 1 to row 0, for the next step to act on.
        buffer_rotate(self.samples)

    def _without_crashed(self, cage: CageInterface, ended: list[int]) -> list[int]:
        """Return the columns whose episodes ended with a step; reset those that wait after a crash."""
        crashes = cage.collect_crashes()
        # Into row 1, as after an automatic reset.
        for number in range(len(cage.groups)) if cage.needs_reset.any() else ():
            cage.start_reset(1, all_envs=False, group=number)
            cage.finish_row(number)
        crashed = {crash.column for crash in crashes}
        return [b for b in ended if b not in crashed]

    def _busy(self, played: list[list[TrajInfo]]) -> list[tuple[CageInterface, EnvGroups]]:
        """Return the cages with episodes left to play, each with all its groups."""
        left = set(self._unfinished(played))
        pairs = zip(self._cages.cages, self._cages.groups, strict=True)
        return [
            (cage, groups)
            for cage, groups in pairs
            if not left.isdisjoint(range(groups.columns.start, groups.columns.stop))
        ]

    def _counted(self, played: list[list[TrajInfo]]) -> list[TrajInfo]:
        pairs = zip(played, self.quotas, strict=True)
        return [traj for trajs, quota in pairs for traj in trajs[:quota]]

    def _unfinished(self, played: list[list[TrajInfo]]) -> list[int]:
        return [b for b, trajs in enumerate(played) if len(trajs) < self.quotas[b]]

    @property
    def cages(self) -> CageColumns:
        """The cages in the order of their columns."""
        return self._cages

    def state(self, *, environments: bool = True) -> State:
        """Return the environments' states, so that their random numbers continue in the next evaluation."""
        state: State = {"evaluations": self._evaluations}
        if environments:
            self._cages.restart_dead()
            states = self._cages.states()
            self._unsaved = count_unsaved(states)
            state["environments"] = states
        return state

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._evaluations = int(state["evaluations"])
        if "environments" in state:
            self._cages.load_states(state["environments"], self._evaluations)
            self._unsaved = count_unsaved(state["environments"])
            self._started = True
        # No states were saved: new seeds, so that the environments do not repeat the first evaluation.
        elif self._evaluations and not self._started:
            self._cages.load_states([NO_STATE] * len(self.quotas), self._evaluations)

    @property
    def unsaved_environments(self) -> dict[str, int]:
        """Number of environments that could not save their state, keyed by class name."""
        return dict(self._unsaved)

    def close(self) -> None:
        """Close the cages. The handler stays open, as it belongs to the training sampler."""
        release_parts(self)
        self._cages.close()
