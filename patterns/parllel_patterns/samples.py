"""The buffer of a sampler, from examples of what its parts return."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parllel.agents import Handler
from parllel.arrays import Storage
from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    Samples,
    StorageRules,
    add_fields,
    allocate,
    buffer_leaves,
    buffer_map,
    insert_field,
)
from parllel.cages import CageInterface, Spaces, VectorizedCage, example_of
from parllel.transforms import Transform
from parllel.types import BatchSpec, Tree


def allocate_samples(
    cages: Sequence[CageInterface],
    batch_spec: BatchSpec,
    handler: Handler,
    transforms: Sequence[Transform] = (),
    *,
    env_info: Mapping[str, Any] | None = None,
    noise: bool = False,
    storage: Storage | Mapping[str, Storage] | None = None,
    switching: bool = False,
    frames: int | Mapping[str, int] = 0,
) -> Samples:
    """Allocate all that is written while sampling: by cages, by the agent, by the transforms.

    Args:
        env_info: examples of those keys of the environments' `info` that are to be stored.
        noise: allocate `agent.noise` too, where policies in the workers find the noise of a batch.
        storage: for all, or by path: patterns such as `{"agent.agent_info.*": "local"}`, of which the last
            that fits wins. Default, also for what no pattern fits: local if all cages are in this process
            and arrays do not switch, else managed.
        switching: allocate arrays with two sides, see AsynchronousSampler.
        frames: how many frames observations are stacks of, to store each frame once; for all leaves, or
            by path: `{"env.observation.camera": 4}`. See `LazyFramesArray`.

    `agent.observation`, what the agent sees, is `env.observation` itself unless a transform owns it. For
    cages that wait to reset there is `env.valid`, and for a recurrent agent the state that a batch starts
    from, `agent.initial_rnn_state` [1, B, ...].

    Raises:
        ValueError: without cages; where arguments, agent, environments and transforms do not fit each other.

    A sampler whose policies act in the workers is built like this::

        cages = build_cages(make_env, B, seeds=seeds, parallel=Plan(n_workers=1, n_main=B // 2))
        handler = SmallPolicyHandler(agent)
        samples = allocate_samples(cages, spec, handler, transforms, noise=True)
        cages[0].set_policy(handler.worker_policy())
        sampler = RolloutSampler(spec, cages, handler, samples, batch_transforms=transforms)
    """
    if not cages:
        raise ValueError("cages: expected at least one")
    rules = StorageRules(storage, "managed" if switching else default_storage(cages))
    memory: Any = {"storage": rules, "switching": switching}
    spaces = cages[0].spaces
    observation = _stored(example_of(spaces.observation))
    action, agent_info = handler.example(observation)
    _check_kind(action, example_of(spaces.action))
    samples = allocate(
        _examples(spaces, _indexing(action), agent_info, env_info, frames), batch_spec, **memory
    )
    if not cages[0].reset_automatically:
        samples = add_fields(samples, {"env.valid": False}, batch_spec, **memory)
    initial_state = handler.initial_state_example()
    if initial_state is not None:
        fields = {"agent.initial_rnn_state": initial_state}
        samples = add_fields(samples, fields, BatchSpec(1, batch_spec.B), **memory)
    for transform in transforms:
        samples = add_fields(samples, transform.fields(samples), batch_spec, **memory)
    if noise:
        fields = {"agent.noise": _noise(handler)}
        samples = add_fields(samples, fields, batch_spec, **memory)
    rules.check_used()
    # What reads rows of env.observation through views of its own; stacks that are not stored have none.
    if frames and ("observation" in samples.agent._fields or hasattr(handler, "worker_policy")):
        raise ValueError(
            "frames: expected 0, as a transform or a policy in compiled code reads the observations"
        )
    if "observation" not in samples.agent._fields:
        samples = insert_field(samples, "agent.observation", samples.env.observation)
    checked: Samples = samples
    return checked


def allocate_eval_samples(
    cages: Sequence[CageInterface], *, frames: int | Mapping[str, int] = 0
) -> Samples:
    """Allocate the buffer of an EvalSampler: one row of observations and actions.

    frames: as for `allocate_samples`.
    """
    if not cages:
        raise ValueError("cages: expected at least one")
    spaces = cages[0].spaces
    examples = _examples(spaces, _indexing(example_of(spaces.action)), None, None, frames)
    samples: Samples = allocate(
        examples, BatchSpec(1, sum(cage.n for cage in cages)), storage=default_storage(cages)
    )
    return samples


def default_storage(cages: Sequence[CageInterface]) -> Storage:
    """Return the cheapest storage that the cages can reach."""
    return "local" if all(isinstance(cage, VectorizedCage) for cage in cages) else "managed"


def _examples(
    spaces: Spaces,
    action: Tree,
    agent_info: Tree,
    env_info: Mapping[str, Any] | None,
    frames: int | Mapping[str, int],
) -> Samples:
    return Samples(
        agent=AgentSamples(action=action, agent_info=agent_info),
        env=EnvSamples(
            # One row more: the observation that follows the batch.
            observation=_observations(example_of(spaces.observation), frames),
            reward=np.float32(0),
            terminated=False,
            truncated=False,
            done=False,
            env_info=None if env_info is None else dict(env_info),
        ),
    )


def _observations(example: Tree, frames: int | Mapping[str, int]) -> Tree:
    paths = [path for path, _ in buffer_leaves(example, "env.observation")]
    depths = dict.fromkeys(paths, 0)
    for path, depth in ({"*": frames} if isinstance(frames, int) else frames).items():
        found = fnmatch.filter(paths, path)
        if not found:
            raise ValueError(f"frames: {path!r} is none of {paths}")
        depths.update(dict.fromkeys(found, depth))
    left = iter(depths.values())
    return buffer_map(lambda x: Field(x, padding=1, frames=next(left)), example)


def _noise(handler: Handler) -> Tree:
    example = handler.noise_example()
    if example is None:
        raise ValueError("noise: expected an agent that draws noise, got one that draws none")
    return example


def _check_kind(action: Tree, expected: Tree) -> None:
    """Refuse fractions for an action space of whole numbers: the environment might round them."""
    there = dict(buffer_leaves(action, "agent.action"))
    for path, example in buffer_leaves(expected, "agent.action"):
        got = np.asarray(there.get(path, example)).dtype
        if np.asarray(example).dtype.kind in "biu" and got.kind not in "biu":
            raise ValueError(
                f"{path}: expected whole numbers, as in the action space, got {got} from the agent"
            )


def _indexing(action: Tree) -> Tree:
    """Keep the integers of actions as they are: they index."""
    return buffer_map(lambda x: Field(x, dtype=_action_dtype(np.asarray(x))), action)


def _action_dtype(example: np.ndarray[Any, Any]) -> np.dtype[Any]:
    return example.dtype if example.dtype.kind in "biu" else Field(example).stored_dtype


def _stored(observation: Tree) -> Tree:
    """Return an observation in the dtypes that the buffer holds."""
    return buffer_map(lambda x: np.asarray(x, Field(x).stored_dtype), observation)
