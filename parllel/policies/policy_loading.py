"""Loading of a trained policy from the folder of its run.

rebuild            cages, workers, buffers, samplers, files ..., and the agent with its checkpoint
copy               how the evaluation processes observations and actions: transforms, dtypes, factories
close              everything but the agent, which a stand-in replaces in its handlers meanwhile
release            the views of buffers that handler and transforms still hold
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.agents.handler import Handler
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_close, buffer_map
from parllel.errors import UnusableDeviceError, WrongStateError
from parllel.policies.run_policy import RunPolicy, check_rows
from parllel.runners.runner import Runner
from parllel.runners.runs import Build, rebuild
from parllel.runners.saved_parts import load_random_state, random_state
from parllel.runs import RunFolder
from parllel.samplers.eval_sampler import EvalSampler
from parllel.samplers.sampler import Sampler
from parllel.transforms.transform import Transform
from parllel.types import Tree

_DEVICE = "device"  # field of configs


def load_policy(
    path: str | os.PathLike[str],
    *,
    best: bool = False,
    changes: Mapping[str, Any] | None = None,
    build: Build | None = None,
    config_class: type | None = None,
    rows: int | None = 16,
) -> RunPolicy:
    """Load a run's policy from its newest checkpoint. It acts as in the run's evaluations.

    The whole run is built first, so code is executed as by `rebuild`. Afterwards only the agent and the step
    transforms remain: no files, no buffers, and no processes (except multiprocessing's fork server, if there
    were workers). Global random generators are unchanged.

    A run that was trained on a GPU can be loaded on a machine without one: if its config has a field `device`
    that PyTorch cannot use here, the policy acts on the CPU, and a warning says so.

    Args:
        path: the folder of the run.
        best: whether to load the checkpoint of the best evaluation instead of the newest.
        changes, build, config_class: as for `rebuild`.
        rows: block size of the agent's computations, see `RunPolicy`.

    Raises:
        ValueError: for the reasons given in `rebuild`, or if the run has no EvalSampler.
        FileNotFoundError: if the folder, the script or the checkpoint does not exist.
    """
    try:
        return _load(path, best, changes, build, config_class, rows)
    except UnusableDeviceError:
        device = RunFolder.open(path).read_record().config.get(_DEVICE)
        if not isinstance(device, str) or _DEVICE in (changes or {}):
            raise
    warnings.warn(
        f"{path}: PyTorch cannot use this run's device {device!r} here, so its policy acts on the CPU",
        stacklevel=2,
    )
    return _load(path, best, {**(changes or {}), _DEVICE: "cpu"}, build, config_class, rows)


def _load(
    path: str | os.PathLike[str],
    best: bool,
    changes: Mapping[str, Any] | None,
    build: Build | None,
    config_class: type | None,
    rows: int | None,
) -> RunPolicy:
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
            # Last step before the stack closes everything: samplers must close the stand-in, not the agent.
            _replace_agent(agent, runner.samplers)
    except BaseException:
        if agent is not None:  # the stack has closed only its stand-in
            agent.close()
        raise
    finally:
        load_random_state(random)  # loading the checkpoint restored the run's generators
    handler = sampler.handler
    handler.agent = agent
    handler.release()
    for transform in transforms:
        transform.release()
    # In both modes, because each has separate memory.
    for mode in (handler.sample_mode, handler.eval_mode):
        mode()
        handler.reset()
    return policy


class _NoAgent(Agent):
    """Stand-in for an agent that must stay open when its samplers are closed."""

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Raise WrongStateError."""
        raise WrongStateError("the agent of this run was removed by load_policy")


def _eval_sampler_of(runner: Runner, path: str | os.PathLike[str]) -> EvalSampler:
    sampler = runner.eval_sampler
    if not isinstance(sampler, EvalSampler):
        raise ValueError(
            f"{path}: this run has no EvalSampler, which defines what its policy sees. Give its runner an "
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
    """Make a stack close samplers first, then their buffers, then everything else."""
    for sampler in samplers:
        samples = getattr(sampler, "samples", None)
        if isinstance(samples, Samples):
            stack.callback(buffer_close, samples)
    for sampler in samplers:
        stack.callback(sampler.close)


def _transforms_of(samplers: Sequence[Sampler]) -> list[Transform]:
    # Including transforms used only in training, which often are in reference cycles with their views.
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
