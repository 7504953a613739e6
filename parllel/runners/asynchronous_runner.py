"""The loop of on-policy learning while the next batch is being sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.agents import Agent
from parllel.buffers import Samples
from parllel.cages import TrajInfo
from parllel.runners.on_policy_runner import OnPolicyRunner
from parllel.runs import RunResult
from parllel.samplers import AsynchronousSampler, EvalSampler
from parllel.types import State


class AsynchronousRunner(OnPolicyRunner):
    """Learn from one batch while an AsynchronousSampler makes the next.

    The weights are published after each optimisation. The next batch was begun before it, so it is as many
    updates old as its staleness says, 1 as a rule. PPO needs no correction beyond its own: its ratio is taken
    against the log probabilities that are stored in the batch, those of the policy that sampled it, and is
    clipped around them. Values and advantages are the older policy's as well.

    Args: those of OnPolicyRunner; the sampler is an AsynchronousSampler that was given the algorithm's agent.

    In addition to what OnPolicyRunner logs, each row has `asynchronous/staleness` (in updates) and
    `asynchronous/waited_s` (seconds in which learning stood still) of the batches since the last row.
    `time/sampling_s` counts only that waiting.
    """

    sampler: AsynchronousSampler

    def __init__(self, *arguments: Any, **named_arguments: Any) -> None:
        super().__init__(*arguments, **named_arguments)
        if not isinstance(self.sampler, AsynchronousSampler):
            raise TypeError(
                f"sampler: expected an AsynchronousSampler, got {type(self.sampler).__name__}; "
                "OnPolicyRunner takes any"
            )
        learner = getattr(self.algorithm, "agent", None)
        if isinstance(learner, Agent) and self.sampler.agent is not learner:
            raise ValueError(
                "sampler: expected one that was given the algorithm's agent, as weights of another would be "
                f"published, got {self.sampler.agent!r}; give AsynchronousSampler(build, agent=...)"
            )
        self._staleness: list[int] = []
        self._waited_s: list[float] = []

    def run(self) -> RunResult:
        """Train, and return what came of it, as OnPolicyRunner does."""
        self.sampler.publish()  # the agent may have been given other weights since, from a checkpoint
        return super().run()

    def sample(self) -> tuple[Samples, list[TrajInfo]]:
        """Take the next batch; the first one shows how it was allocated, and what the agent sees."""
        samples, trajs = super().sample()
        self._checkpoints.see_batch(samples)
        if isinstance(self.eval_sampler, EvalSampler):
            self.eval_sampler.compare_with(samples)
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
