"""Take the policy of a run out of its folder.

rebuild            cages, workers, buffers, samplers, files ... and the agent, with its checkpoint
copy               what the evaluation makes of observations and actions: transforms, dtypes, factories
close              everything but the agent, in whose place its handlers hold a stand-in meanwhile
release            the views of buffers that handler and transforms still have
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.agents.handler import Handler
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_close, buffer_map
from parllel.errors import WrongStateError
from parllel.policies.run_policy import RunPolicy, check_rows
from parllel.runners.runner import Runner
from parllel.runners.runs import Build, rebuild
from parllel.runners.saved_parts import load_random_state, random_state
from parllel.samplers.eval_sampler import EvalSampler
from parllel.samplers.sampler import Sampler
from parllel.transforms.transform import Transform
from parllel.types import Tree


def load_policy(
    path: str | os.PathLike[str],
    *,
    best: bool = False,
    changes: Mapping[str, Any] | None = None,
    build: Build | None = None,
    config_class: type | None = None,
    rows: int | None = 16,
) -> RunPolicy:
    """Return the policy of a run's newest checkpoint, which acts as the run's evaluation does.

    The run is put together for it, so code is executed as by `rebuild`. Nothing of it stays but the agent and
    the step transforms: no process but the fork server, if there were workers, no file, no buffer. Global
    random generators are left as they were.

    Args:
        path: of the run's folder.
        best: load the checkpoint of the best evaluation, not the newest.
        changes, build, config_class: as for `rebuild`.
        rows: in a block that the agent computes at once, see `RunPolicy`.

    Raises:
        ValueError: as `rebuild` does, and if the run has no EvalSampler.
        FileNotFoundError: if the folder, the script or the checkpoint is not there.
    """
    check_rows(rows)
    random = random_state()
    agent: Agent | None = None
    try:
        with ExitStack() as stack:
            runner = rebuild(
                path, stack, best=best, changes=changes, build=build, config_class=config_class
            )
            sampler = _eval_sampler_of(runner, path)
            policy = _policy_of(sampler, runner.result.elapsed_steps, rows)
            _close_first(runner.samplers, stack)
            transforms = _transforms_of(runner.samplers)
            agent = sampler.handler.agent
            # Last, so that whatever is closed from here on finds the stand-in.
            _replace_agent(agent, runner.samplers)
    except BaseException:
        if agent is not None:  # it was not closed with the rest
            agent.close()
        raise
    finally:
        load_random_state(random)  # loading a run loads theirs too
    handler = sampler.handler
    handler.agent = agent
    handler.release()
    for transform in transforms:
        transform.release()
    # In both modes, of which each remembers for itself.
    for mode in (handler.sample_mode, handler.eval_mode):
        mode()
        handler.reset()
    return policy


class _NoAgent(Agent):
    """Stand where an agent was that is not to be closed."""

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Refuse."""
        raise WrongStateError("the agent of this run was taken out of it")


def _eval_sampler_of(runner: Runner, path: str | os.PathLike[str]) -> EvalSampler:
    sampler = runner.eval_sampler
    if not isinstance(sampler, EvalSampler):
        raise ValueError(
            f"{path}: this run has no EvalSampler, which says what its policy is shown; give its runner an "
            "eval_sampler"
        )
    return sampler


def _policy_of(sampler: EvalSampler, elapsed_steps: int, rows: int | None) -> RunPolicy:
    cages, samples = sampler.cages.cages, sampler.samples
    observation, action = (
        buffer_map(lambda array: np.zeros((1, *array.shape[2:]), array.dtype), tree)
        for tree in (samples.env.observation, samples.agent.action)
    )
    return RunPolicy(
        sampler.handler,
        sampler.as_seen,
        cages[0].spaces,
        observation,
        action,
        n_columns=len(sampler.quotas),
        env_factories=[factory for cage in cages for factory in cage.env_factories],
        elapsed_steps=elapsed_steps,
        rows=rows,
    )


def _close_first(samplers: Sequence[Sampler], stack: ExitStack) -> None:
    """Let a stack close samplers, then their buffers, before all else."""
    for sampler in samplers:
        samples = getattr(sampler, "samples", None)
        if isinstance(samples, Samples):
            stack.callback(buffer_close, samples)
    for sampler in samplers:
        stack.callback(sampler.close)


def _transforms_of(samplers: Sequence[Sampler]) -> list[Transform]:
    # Also those of training alone, which are often in a reference cycle with what they make views by.
    return [
        transform
        for sampler in samplers
        for name in ("step_transforms", "batch_transforms")
        for transform in getattr(sampler, name, ())
    ]


def _replace_agent(agent: Agent, samplers: Sequence[Sampler]) -> None:
    for sampler in samplers:
        handler = getattr(sampler, "handler", None)  # samplers in other processes have none here
        if isinstance(handler, Handler) and handler.agent is agent:
            handler.agent = _NoAgent()
