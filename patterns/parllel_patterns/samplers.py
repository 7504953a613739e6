"""Construction of samplers with matching buffers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from parllel.agents import Handler
from parllel.arrays import LazyFramesArray
from parllel.buffers import buffer_leaves
from parllel.cages import CageInterface, VectorizedCage
from parllel.distributed.rollouts import FragmentSampler
from parllel.envs import multi_agent_info
from parllel.runs.names import suggest_names
from parllel.samplers import (
    BasicSampler,
    BatchSampler,
    EvalSampler,
    RecurrentSampler,
    RolloutSampler,
    check_handler,
)
from parllel.transforms import BatchTransform, StepTransform
from parllel.types import BatchSpec
from parllel_patterns.samples import allocate_eval_samples, allocate_samples


@suggest_names(allocate_samples)
def build_sampler(
    batch_spec: BatchSpec,
    cages: Sequence[CageInterface],
    handler: Handler,
    step_transforms: Sequence[StepTransform] = (),
    batch_transforms: Sequence[BatchTransform] = (),
    *,
    sampler_class: type[BatchSampler] | None = None,
    decorrelation_steps: int = 0,
    decorrelation_seed: Any = None,
    **allocation: Any,
) -> BatchSampler:
    """Return a sampler with a buffer for everything that its cages, agent and transforms write.

    Closing the sampler closes the cages.

    Args:
        batch_spec, cages, handler, step_transforms, batch_transforms: as for `BasicSampler`.
        decorrelation_steps, decorrelation_seed: as for `BasicSampler`.
        sampler_class: class of the sampler. Defaults to `RecurrentSampler` for cages with
            reset_automatically=False, which recurrent agents need, and otherwise to `BasicSampler`.
        allocation: arguments of `allocate_samples`: `env_info`, `storage`, `dtype`, `frames`, `switching`,
            and `n_batches` for a replay.

    If the agent has `names` (several agents in one environment), `multi_agent_info(names)` is added to
    `env_info`.

    Raises:
        ValueError, TypeError: any error of `allocate_samples` and of the sampler. The TypeError for
            an unknown argument suggests a similar one.
    """
    _check_parts(batch_spec, cages, handler)
    _check_lists(step_transforms=step_transforms, batch_transforms=batch_transforms)
    if sampler_class is None:
        # The first is enough: samplers reject cages that differ in this.
        waiting = bool(cages) and not cages[0].reset_automatically
        sampler_class = RecurrentSampler if waiting else BasicSampler
    allocation["env_info"] = _with_info_of_agents(handler, allocation.get("env_info"))
    # Loading the compiler takes a second: do it now instead of in the first batch.
    importlib.import_module("parllel.cages.stepping.compiled")
    transforms = [*step_transforms, *batch_transforms]
    if transforms:
        importlib.import_module("parllel.transforms.compiled")
    samples = allocate_samples(cages, batch_spec, handler, transforms, **allocation)
    return sampler_class(
        batch_spec,
        cages,
        handler,
        samples,
        step_transforms,
        batch_transforms,
        decorrelation_steps=decorrelation_steps,
        decorrelation_seed=decorrelation_seed,
    )


@suggest_names(build_sampler, allocate_samples)
def build_rollout_sampler(
    batch_spec: BatchSpec,
    cages: Sequence[CageInterface],
    handler: Handler,
    batch_transforms: Sequence[BatchTransform] = (),
    **arguments: Any,
) -> BatchSampler:
    """Return a sampler with its buffer, in which policies act inside the workers of the cages.

    If no cage has workers, returns a BasicSampler, with the same samples.

    Args:
        batch_spec, cages, batch_transforms: as for `RolloutSampler`.
        handler: a handler whose policies can act in workers, such as
            `parllel.torch.SmallPolicyHandler(agent)`.
        arguments: further arguments of `build_sampler`.

    Raises:
        TypeError: for a handler without such policies.
        ValueError: for the reasons given in `build_sampler`.
    """
    if not hasattr(handler, "worker_policy"):
        raise TypeError(
            "build_rollout_sampler: handler: expected a handler with a worker_policy, such as "
            f"SmallPolicyHandler(agent), got a {type(handler).__name__}. Use build_sampler for it"
        )
    # One script for every machine: the plan of `build_cages` may be without workers.
    if all(isinstance(cage, VectorizedCage) for cage in cages):
        return build_sampler(batch_spec, cages, handler, (), batch_transforms, **arguments)
    # Before the sampler is built, which rejects cages without a policy.
    for cage in cages:
        cage.set_policy(handler.worker_policy())  # type: ignore[attr-defined]
    return build_sampler(
        batch_spec,
        cages,
        handler,
        (),
        batch_transforms,
        sampler_class=RolloutSampler,
        # Drawn by the main process, so samples do not depend on the distribution of columns over workers.
        noise=True,
        **arguments,
    )


@suggest_names(EvalSampler)
def build_eval_sampler(
    cages: Sequence[CageInterface],
    sampler: BatchSampler | FragmentSampler,
    n_episodes: int,
    **arguments: Any,
) -> EvalSampler:
    """Return a sampler that evaluates the agent of `sampler`, with its transforms, dtypes and frames.

    Closing the sampler closes the cages.

    Args:
        cages: cages for evaluation, with reset_automatically=True.
        sampler: the training sampler.
        n_episodes: total number of episodes; at least one per environment.
        arguments: further arguments of `EvalSampler`.

    Raises:
        ValueError: for the reasons given in `EvalSampler`.
    """
    leaves = dict(buffer_leaves(sampler.samples.env.observation, "env.observation"))
    samples = allocate_eval_samples(
        cages,
        # From the training buffer: observations of evaluations must look like those of training.
        dtype={path: array.dtype for path, array in leaves.items()},
        frames={
            path: array.frames
            for path, array in leaves.items()
            if isinstance(array, LazyFramesArray)
        },
    )
    handler, transforms = sampler.handler, sampler.step_transforms
    return EvalSampler(cages, handler, samples, n_episodes, transforms, **arguments)


def _check_parts(batch_spec: Any, cages: Any, handler: Any) -> None:
    if not isinstance(batch_spec, BatchSpec):
        kind = type(batch_spec).__name__
        raise TypeError(f"build_sampler: batch_spec: expected a BatchSpec, got a {kind}")
    if not isinstance(cages, Sequence):
        raise TypeError(
            f"build_sampler: cages: expected a list of cages, as build_cages returns, got {cages!r}"
        )
    check_handler(handler)


def _check_lists(**lists: Any) -> None:
    for name, transforms in lists.items():
        if not isinstance(transforms, Sequence):
            kind = type(transforms).__name__
            raise TypeError(f"build_sampler: {name}: expected a list of transforms, got a {kind}")


def _with_info_of_agents(
    handler: Handler, env_info: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    names = getattr(handler.agent, "names", None)
    # The caller's values come last, so that they can override a dtype or add keys.
    return env_info if names is None else {**multi_agent_info(names), **(env_info or {})}
