"""Allocation of a sampler's buffer from examples of what its parts return."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from parllel.agents import (
    Handler,
    agent_examples,
    check_action_space,
    check_example_action,
    initial_state_example,
    noise_example,
)
from parllel.arrays import Array, LazyFramesArray, Storage
from parllel.buffers import (
    AgentSamples,
    DtypeRules,
    EnvSamples,
    Field,
    Samples,
    StorageRules,
    add_fields,
    allocate,
    buffer_leaves,
    buffer_map,
    check_names,
    insert_field,
)
from parllel.cages import (
    CageInterface,
    Spaces,
    VectorizedCage,
    check_side_by_side,
    example_of,
    stored_example,
)
from parllel.runs.names import suggest_names
from parllel.transforms import (
    StepTransform,
    Transform,
    add_transform_fields,
    note_seen_observation,
    seen_observation_example,
)
from parllel.types import BatchSpec, Tree


@suggest_names()
def allocate_samples(
    cages: Sequence[CageInterface],
    batch_spec: BatchSpec,
    handler: Handler,
    transforms: Sequence[Transform] = (),
    *,
    env_info: Mapping[str, Any] | None = None,
    noise: bool = False,
    next_observation: bool = False,
    storage: Storage | Mapping[str, Storage] | None = None,
    dtype: Mapping[str, DTypeLike] | None = None,
    switching: bool = False,
    n_batches: int = 1,
    frames: int | Mapping[str, int] = 0,
    valid: bool = False,
) -> Samples:
    """Allocate everything that cages, agent and transforms write while sampling.

    Args:
        env_info: examples of the keys of `info` to store, which are also the values for an info without the
            key: `{"episode": {"r": 0.0, "l": 0}}` for gymnasium's RecordEpisodeStatistics, which adds it at
            the end of an episode. With an integer example, fractions are an error.
        noise: whether to allocate `agent.noise`, from which policies in workers read the noise of a
            batch; see `build_rollout_sampler`.
        next_observation: whether to allocate `env.next_observation`, [T, B, ...]: the observation
            after each step, including the final observation of an episode. BatchSamplers fill it at
            the end of a batch.
        storage: one storage for all fields, or storages keyed by path pattern, such as
            `{"agent.agent_info.*": "local"}`; the last matching pattern wins. By default, and for
            paths that match no pattern, storage is local if all cages are in this process and
            arrays do not switch, and managed otherwise.
        dtype: dtypes keyed by path pattern, such as `{"env.observation.position": np.float64}`. For
            all other fields, float64 is stored as float32, and int64 as int32 in observations whose
            bounds allow it.
        switching: allocate arrays with two sides, see AsynchronousSampler.
        n_batches: number of batches that the buffer holds, for a replay. Each is written to the T rows after
            the previous one, wrapping around at the end; `samples.env.reward.full` has all rows.
        frames: number of stacked frames in observations, to store each frame only once; for all leaves, or
            by path: `{"env.observation.camera": 4}`. See `LazyFramesArray`.
        valid: whether to allocate `env.valid` for any cages: for a replay that is filled from elsewhere, by a
            RecurrentSampler or with fragments.

    `agent.observation`, the agent's input, is `env.observation` itself unless a transform declares it. Cages
    with reset_automatically=False or restarts add `env.valid`, and those with restarts `env.aborted`; a
    recurrent agent adds the state at the start of a batch, `agent.initial_rnn_state` [1, B, ...].

    Raises:
        ValueError: without cages, or if arguments, agent, environments and transforms do not fit together.
    """
    spaces = _spaces_of(cages)
    check_names(example_of(spaces.observation), "env.observation")
    check_names(example_of(spaces.action), "agent.action")
    rules = StorageRules(storage, "managed" if switching else default_storage(cages))
    dtypes = DtypeRules(dtype)
    memory = _memory(rules, dtypes, switching, n_batches)
    # The agent acts once on an example, because only it knows the structure of its actions and infos.
    action, agent_info = _agent_example(handler, spaces, transforms, env_info, dtypes)
    examples = _examples(spaces, _indexing(action), agent_info, env_info, frames)
    samples = allocate(examples, batch_spec, **memory)
    samples = _add_single_rows(samples, handler, env_info, batch_spec.B, memory)
    fields = _further_fields(samples, cages, handler, next_observation, noise, valid)
    samples = add_fields(samples, fields, batch_spec, **memory)
    samples = add_transform_fields(samples, transforms, batch_spec, **memory)
    # All paths are known only now: a pattern that matches none of them is misspelt.
    rules.check_used()
    dtypes.check_used()
    if frames:
        _check_frames(samples, handler)
    # Last, because any transform may have declared it.
    if "observation" not in samples.agent._fields:
        samples = insert_field(samples, "agent.observation", samples.env.observation)
    checked: Samples = samples
    return checked


def _memory(
    rules: StorageRules, dtypes: DtypeRules, switching: bool, n_batches: int
) -> dict[str, Any]:
    """Return the allocation settings of all fields."""
    whole = isinstance(n_batches, (int, np.integer)) and not isinstance(n_batches, bool)
    if not whole or n_batches < 1:
        raise ValueError(f"n_batches: expected an int of at least 1, got {n_batches!r}")
    return {
        "storage": rules,
        "dtype": dtypes,
        "switching": switching,
        "batches": int(n_batches),
    }


def _further_fields(
    samples: Any,
    cages: Sequence[CageInterface],
    handler: Handler,
    next_observation: bool,
    noise: bool,
    valid: bool,
) -> dict[str, Any]:
    """Return the optional fields by path."""
    fields: dict[str, Any] = {}
    if next_observation:
        # Like the allocated arrays, so that `dtype` rules of observations apply here too.
        fields["env.next_observation"] = buffer_map(_like, samples.env.observation)
    restarts = any(cage.restarts is not None for cage in cages)
    if valid or restarts or not cages[0].reset_automatically:
        fields["env.valid"] = False
    if restarts:
        fields["env.aborted"] = False
    if noise:
        fields["agent.noise"] = _noise(handler)
    return fields


def _check_frames(samples: Any, handler: Handler) -> None:
    # These read rows of env.observation through views, which lazily stacked frames do not have.
    if _replaces_frames(samples) or hasattr(handler, "worker_policy"):
        raise ValueError(
            "frames: expected 0, because a transform or a policy in compiled code reads the "
            "observations"
        )


def _add_single_rows(
    samples: Any, handler: Handler, env_info: Mapping[str, Any] | None, B: int, memory: Any
) -> Any:
    """Add fields [1, B, ...] that exist once per batch: defaults of infos, and the initial state."""
    fields: dict[str, Any] = {}
    if env_info is not None:
        fields["env.env_info_default"] = dict(env_info)
    initial_state = initial_state_example(handler)
    if initial_state is not None:
        fields["agent.initial_rnn_state"] = initial_state
    samples = add_fields(samples, fields, BatchSpec(1, B), **memory)
    if env_info is not None:
        buffer_map(_fill, samples.env.env_info_default, dict(env_info))
    return samples


def _agent_example(
    handler: Handler,
    spaces: Spaces,
    transforms: Sequence[Transform],
    env_info: Mapping[str, Any] | None,
    dtypes: DtypeRules,
) -> tuple[Tree, Tree]:
    """Return the agent's action and info for an example, after checking them against the action space."""
    check_action_space(handler.agent, spaces.action, spaces.name)
    observation = raw = _stored(stored_example(spaces.observation), dtypes)
    probe: Samples | None = None
    if any(isinstance(transform, StepTransform) for transform in transforms):
        # The real buffer needs the agent's output, and the agent needs the step transforms' output. So the
        # transforms get a temporary buffer of a single cell.
        one = BatchSpec(1, 1)
        probe = allocate(_examples(spaces, None, None, env_info, 0), one, dtype=dtypes)
        observation = seen_observation_example(probe, transforms, one, observation)
    try:
        action, agent_info = agent_examples(handler, observation)
    except Exception as error:
        if probe is not None:
            note_seen_observation(error, probe, transforms, observation, raw)
        raise
    check_example_action(action, spaces.action, spaces.name)
    return action, agent_info


@suggest_names()
def allocate_eval_samples(
    cages: Sequence[CageInterface],
    *,
    dtype: Mapping[str, DTypeLike] | None = None,
    frames: int | Mapping[str, int] = 0,
) -> Samples:
    """Allocate the buffer of an EvalSampler: one row of observations and actions.

    dtype, frames: as for `allocate_samples`.
    """
    spaces = _spaces_of(cages)
    examples = _examples(spaces, _indexing(example_of(spaces.action)), None, None, frames)
    batch_spec = BatchSpec(1, sum(cage.n for cage in cages))
    memory: Any = {"storage": default_storage(cages), "dtype": dtype}
    samples: Samples = allocate(examples, batch_spec, **memory)
    return samples


def default_storage(cages: Sequence[CageInterface]) -> Storage:
    """Return the cheapest storage that all cages can access."""
    # Not "shared", which only processes started after the allocation inherit.
    return "local" if all(isinstance(cage, VectorizedCage) for cage in cages) else "managed"


def _spaces_of(cages: Sequence[CageInterface]) -> Spaces:
    """Return the common spaces of all cages."""
    if not cages:
        raise ValueError("cages: expected at least one")
    check_side_by_side([cage.spaces for cage in cages])
    return cages[0].spaces


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
            # One extra row, for the observation after the batch.
            observation=_observations(stored_example(spaces.observation), frames),
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
            raise ValueError(f"frames: expected paths from {paths}, got {path!r}")
        depths.update(dict.fromkeys(found, depth))
    # `buffer_leaves` and `buffer_map` visit the leaves in the same order.
    left = iter(depths.values())
    return buffer_map(lambda x: Field(x, padding=1, frames=next(left)), example)


def _replaces_frames(samples: Samples) -> bool:
    """Return whether a transform replaces stacked frames as the agent's input."""
    if "observation" not in samples.agent._fields:
        return False
    seen = {leaf.block.key for _, leaf in buffer_leaves(samples.agent.observation)}
    return any(
        isinstance(leaf, LazyFramesArray) and leaf.block.key not in seen
        for _, leaf in buffer_leaves(samples.env.observation)
    )


def _like(leaf: Array) -> Field:
    """Return a field with the cell shape and dtype of an array."""
    return Field(np.zeros(leaf.shape[2:], leaf.dtype), dtype=leaf.dtype)


def _noise(handler: Handler) -> Tree:
    example = noise_example(handler)
    if example is None:
        raise ValueError("noise: expected an agent that draws noise, got one that draws none")
    return example


def _indexing(action: Tree) -> Tree:
    """Keep the dtype of integer actions, because they are used as indices."""
    return buffer_map(lambda x: Field(x, dtype=_action_dtype(np.asarray(x))), action)


def _action_dtype(example: np.ndarray[Any, Any]) -> np.dtype[Any]:
    # float64 becomes float32 as elsewhere, but int64 stays: torch's `gather` accepts nothing else.
    return example.dtype if example.dtype.kind in "biu" else Field(example).stored_dtype


def _stored(observation: Tree, dtypes: DtypeRules) -> Tree:
    """Return an observation in the requested dtypes."""
    leaves = buffer_leaves(observation, "env.observation")
    asked = iter([dtypes.stored(path, leaf.dtype) for path, leaf in leaves])
    return buffer_map(lambda x: np.asarray(x, next(asked)), observation)


def _fill(array: Array, example: Any) -> None:
    # In all rows, because each batch of the buffer reads a different row.
    array.full[...] = example
