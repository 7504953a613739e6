"""The loop of on-policy learning while the next batch is being sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.buffers import Samples
from parllel.cages import TrajInfo
from parllel.runners.on_policy_runner import OnPolicyRunner, RunResult
from parllel.samplers import AsynchronousSampler
from parllel.types import State


class AsynchronousRunner(OnPolicyRunner):
    """Learn from one batch while an AsynchronousSampler makes the next.

    The weights are published after each optimisation. The next batch was begun before it, so it is as many
    updates old as its staleness says, 1 as a rule. PPO needs no correction beyond its own: its ratio is taken
    against the log probabilities that are stored in the batch, those of the policy that sampled it, and is
    clipped around them. Values and advantages are the older policy's as well.

    Args: those of OnPolicyRunner; the sampler is an AsynchronousSampler that was given the algorithm's agent.

    Logs, beside what OnPolicyRunner does, `asynchronous/staleness` and `asynchronous/waited_s` of the batches
    since the last row: updates, and seconds that learning stood still. Of a batch `time/sampling_s` counts
    that waiting alone.
    """

    sampler: AsynchronousSampler

    def __init__(self, *arguments: Any, **named_arguments: Any) -> None:
        super().__init__(*arguments, **named_arguments)
        if not isinstance(self.sampler, AsynchronousSampler):
            raise TypeError(
                f"sampler: expected an AsynchronousSampler, got {type(self.sampler).__name__}; "
                "OnPolicyRunner takes any"
            )
        self._staleness: list[int] = []
        self._waited_s: list[float] = []

    def run(self) -> RunResult:
        """Train, and return what came of it, as OnPolicyRunner does."""
        self.sampler.publish()  # the agent may have been given other weights since, from a checkpoint
        return super().run()

    def sample(self) -> tuple[Samples, list[TrajInfo]]:
        """Take the next batch; the first one shows how the other process has allocated it."""
        samples, trajs = super().sample()
        self._checkpoints.see_batch(samples)
        return samples, trajs

    def run_iteration(self) -> Mapping[str, Any]:
        """Take the next batch, learn from it, publish the weights, and return the diagnostics."""
        diagnostics = super().run_iteration()
        stats = self.sampler.stats
        self._staleness.append(stats["staleness"])
        self._waited_s.append(stats["waited_s"])
        self.sampler.publish()
        return diagnostics

    def state(self) -> State:
        """Return what OnPolicyRunner does, and what the next row says of the batches so far."""
        waited = {"staleness": list(self._staleness), "waited_s": list(self._waited_s)}
        return {**super().state(), "asynchronous": waited}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned. Batches that were made ahead are made again."""
        super().load_state(state)
        self._staleness = [int(value) for value in state["asynchronous"]["staleness"]]
        self._waited_s = [float(value) for value in state["asynchronous"]["waited_s"]]

    def _write_row(self, diagnostics: Mapping[str, Any]) -> None:
        self.logger.log_array("asynchronous/staleness", self._staleness)
        self.logger.log_value("asynchronous/waited_s", sum(self._waited_s))
        self._staleness, self._waited_s = [], []
        super()._write_row(diagnostics)
