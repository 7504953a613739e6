"""Distributions of weights, actions and rewards, for TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from parllel.agents.weights import weights_of
from parllel.buffers.paths import leaf_paths
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.runners.callback import Callback, RunnerInterface
from parllel.transforms.record_video import RecordingSchedule, check_schedule, every_nth
from parllel.types import State


class HistogramRecorder(Callback):
    """Sends distributions to the writers that show them, such as `TensorBoardWriter`.

    These are, in batches that are due: rewards and actions, as they are in the batch, and each array of the
    agent's weights. Values that are not finite are left out. Without such a writer nothing is computed.

    Args:
        schedule: function that decides whether a batch is due, given the number of environment steps so far
            and the number of the batch, counted from 0; see `parllel.transforms.every_nth`.

    Raises:
        TypeError: if `schedule` is not a function.

    The state is the number of batches.
    """

    def __init__(self, schedule: RecordingSchedule = every_nth(10)) -> None:  # noqa: B008
        check_schedule("HistogramRecorder", schedule)
        self._schedule = schedule
        self._n_batches = 0

    def start(self, runner: RunnerInterface) -> None:
        """Store the runner."""
        self._runner = runner

    def after_sampling(
        self, elapsed_steps: int, samples: Samples, trajs: Sequence[TrajInfo]
    ) -> None:
        """Send the distributions of a batch, if it is due."""
        due = self._schedule(elapsed_steps, self._n_batches)
        self._n_batches += 1
        logger = self._runner.logger
        if not due or not logger.shows_pictures:
            return
        parts: list[tuple[str, Any]] = [
            ("rewards", samples.env.reward),
            ("actions", samples.agent.action),
        ]
        agent = getattr(self._runner.algorithm, "agent", None)
        if agent is not None:
            # Of an agent that does not say what its weights are, there are none to show.
            with suppress(NotImplementedError):
                parts.append(("weights", weights_of(agent)))
        for root, tree in parts:
            for path, leaf in leaf_paths(tree):
                values = np.asarray(leaf)
                if values.dtype.kind in "biuf":
                    logger.histogram(elapsed_steps, "/".join((root, *path)), values)

    def state(self) -> State:
        """Return the number of batches."""
        return {"n_batches": self._n_batches}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._n_batches = int(state["n_batches"])
