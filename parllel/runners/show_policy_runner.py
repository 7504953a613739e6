"""Show what an agent has learned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parllel.cages import TrajInfo
from parllel.pictures import Frame, RenderedColumns
from parllel.samplers import EvalSampler


class ShowPolicyRunner:
    """Play whole episodes of one environment with the agent in eval mode, and show every step.

    A picture is taken before each step, of what the agent is about to act on; the last observation of an
    episode, on which it does not act, is not shown. The environments for evaluations have moved on
    afterwards; nothing else of a training changes.

    Args:
        eval_sampler: its agent, transforms and environments are used.
        n_episodes: to play.
        show: takes a picture, uint8 [H, W, 3]; it is valid until the next one.
        column: number of the environment.
        seed: of the first episode, and through the environment's generator of those that follow; None goes
            on from where the environment is.

    Attributes:
        fps: pictures per second at which the environment looks natural.

    Raises:
        ValueError: if `n_episodes` is less than one, or there is no such column.
        WrongStateError: if the environment was not made with render_mode="rgb_array".
    """

    def __init__(
        self,
        eval_sampler: EvalSampler,
        n_episodes: int,
        *,
        show: Callable[[Frame], None],
        column: int = 0,
        seed: int | None = None,
    ) -> None:
        if n_episodes < 1:
            raise ValueError(f"n_episodes: expected at least 1, got {n_episodes}")
        self.eval_sampler = eval_sampler
        self.n_episodes = n_episodes
        self._rendered = RenderedColumns(eval_sampler.cages, [column])
        self._show = show
        self._seed = seed
        self.fps = self._rendered.fps

    def run(self) -> list[TrajInfo]:
        """Play the episodes and return what is known of them; `show` may raise to end this early."""
        sampler = self.eval_sampler
        if self._seed is not None:
            self._reseed(self._seed)
        before = sampler.quotas, sampler.watch
        (column,) = self._rendered.columns
        # The other environments take part, but the evaluation does not wait for their episodes.
        quotas = np.zeros_like(sampler.quotas)
        quotas[column] = self.n_episodes
        sampler.quotas, sampler.watch = quotas, self._show_one
        try:
            return sampler.collect_batch(0)[1]
        finally:
            sampler.quotas, sampler.watch = before

    def _show_one(self) -> None:
        self._show(self._rendered.frames()[0])

    def _reseed(self, seed: int) -> None:
        cages = self.eval_sampler.cages
        # A seed that an environment was made with would be used by the first reset, instead of ours.
        cages.reset(0, everyone=True)
        for cage, columns in zip(cages.cages, cages.columns, strict=True):
            if columns.start <= self._rendered.columns[0] < columns.stop:
                cage.env_method("reset", seed=seed)
