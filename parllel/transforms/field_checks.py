"""Check that transforms fit the fields allocated for them, and run in an order that makes sense.

Fields are compared by their memory and not by their paths, since one array may have two paths: without a
transform that writes it, `agent.observation` is `env.observation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parllel.arrays.array import Array
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.transforms.transform import StepTransform, Transform, naming

SEEN, RAW = "agent.observation", "env.observation"
# Transforms declare them, but the handler writes them: they are no output of theirs.
WRITTEN_BY_HANDLER = ("agent.final_value", "agent.final_observation")
# What to do where a field is read that nothing writes.
_ADVANTAGE = (
    "Give the sampler EstimateAdvantage(discount, gae_lambda), or EstimateMultiAgentAdvantage for several "
    "agents."
)
_LEARNER = "Put EvaluatePolicy(agent) before it in the transforms of the TransformingAlgorithm."
_HINTS = {
    "agent.advantage": _ADVANTAGE,
    "agent.return_": _ADVANTAGE,
    "agent.final_observation": "Give the sampler FinalObservations().",
    "agent.learner_value": _LEARNER,
    "agent.learner_log_prob": _LEARNER,
    "agent.expert_action": "Give the sampler LabelActions(expert).",
    "agent.agent_info.log_prob": "Use an agent that returns log probabilities, such as PgAgent.",
    "agent.agent_info.value": "Use an agent that returns values, such as PgAgent.",
    "agent.initial_rnn_state": "Use an agent with a memory.",
    "env.valid": "Use RecurrentSampler, with cages that have reset_automatically=False.",
}


@dataclass(frozen=True)
class FieldUsage:
    """The fields that a transform declares to write and read.

    Attributes:
        name: name of the transform's class.
        writes: memory identity of each leaf that the transform writes, keyed by path; None if not
            allocated.
        reads: memory identities of the fields that the transform reads, keyed by path; None if it
            does not declare any.
    """

    name: str
    writes: dict[str, Any]
    reads: dict[str, Any] | None


def check_fields(samples: Samples, transforms: Sequence[Transform]) -> None:
    """Check that a buffer fits the transforms of a sampler, which are given in the order in which they run.

    Raises:
        ValueError: if a transform writes a field that was not allocated for it or that another
            transform writes; if a field was allocated for a transform that is missing; if a
            transform reads a field that does not exist or that a later transform writes. The
            message names the transforms and the field.
        TypeError: if `reads` is a string.
    """
    leaves = dict(buffer_leaves(samples))
    uses = [uses_of(transform, samples, leaves) for transform in transforms]
    writers: dict[Any, str] = {}
    for one in uses:
        for path, identity in one.writes.items():
            _check_allocated(one.name, path, leaves)
            if identity in writers:
                raise ValueError(duplicate_field_message(path, writers[identity], one.name))
            writers[identity] = one.name
    # Without its transform a field would keep zeros, from which an algorithm might learn.
    for path, leaf in leaves.items():
        if writer_of(leaf) and _identity(leaf) not in writers:
            raise ValueError(
                f"samples: {path} was allocated for {writer_of(leaf)}, which was not given to the "
                "sampler; pass the same transforms to the sampler and to allocate_samples"
            )
    check_order(uses)


def check_order(uses: Sequence[FieldUsage]) -> None:
    """Raise ValueError if a transform would read a field before a later transform writes it."""
    for i, reader in enumerate(uses):
        for path, identity in (reader.reads or {}).items():
            for writer in uses[i + 1 :]:
                written = {
                    identity
                    for path, identity in writer.writes.items()
                    if not path.startswith(WRITTEN_BY_HANDLER)
                }
                if identity in written:
                    raise ValueError(written_later(reader.name, path, writer.name))


def missing_field(reader: str, path: str, error: ValueError | None = None) -> str:
    """Return the error message for a field that is read but that nothing writes.

    error: the error of `field_at`, which lists the existing fields; None if the field exists but is
        None.
    """
    if path in _HINTS:
        return f"{reader} needs the field {path}, which nothing writes. {_HINTS[path]}"
    if error is None:
        return f"{reader} needs the field {path}, which is None"
    # Without its first words, which name the path again.
    return f"{reader} needs the field {path}: {str(error).partition(': ')[2]}"


def check_outputs_are_read(
    samples: Samples, transforms: Sequence[Transform], readers: Mapping[str, Sequence[str]]
) -> None:
    """Check that at least one field of each transform is read, since the transform is useless otherwise.

    A transform that does not declare what it reads is assumed to read all fields that are written
    before it.

    Args:
        transforms: the transforms, in order.
        samples: a buffer with the fields of the transforms.
        readers: paths of the fields that other parts read, keyed by the name of the reader. The
            agent reads `agent.observation`.

    Raises:
        ValueError: if nothing reads the fields of a transform. The message names the transform, its
            fields, and the fields that are read instead.
    """
    leaves = dict(buffer_leaves(samples))
    uses = [uses_of(transform, samples, leaves) for transform in transforms]
    read_by_others = set(identities_below(samples, SEEN))
    for paths in readers.values():
        read_by_others.update(*(identities_below(samples, path) for path in paths))
    for i, one in enumerate(uses):
        outputs = {
            path: identity
            for path, identity in one.writes.items()
            if not path.startswith(WRITTEN_BY_HANDLER)
        }
        if any(later.reads is None for later in uses[i + 1 :]):
            continue
        # Not what it reads itself: that would be a field for its own use, and no result.
        read = read_by_others.union(
            *((other.reads or {}).values() for other in uses if other is not one)
        )
        if outputs and read.isdisjoint(outputs.values()):
            raise ValueError(_unread(one.name, list(outputs), uses, readers))


def _unread(
    name: str, outputs: list[str], uses: Sequence[FieldUsage], readers: Mapping[str, Sequence[str]]
) -> str:
    others = {one.name: list(one.reads or {}) for one in uses if one.name != name} | dict(readers)
    said = "; ".join(f"{reader} reads {', '.join(paths)}" for reader, paths in others.items())
    return (
        f"{name}: writes {', '.join(outputs)}, which nothing reads ({said}); name the field where it is to "
        'be used, as in EstimateAdvantage(..., reward="env.normalized_reward"), leave the transform out, or '
        f"give the runner also_reads=({outputs[0]!r},) if code of yours reads it"
    )


def written_later(reader: str, path: str, writer: str) -> str:
    """Return the error message for a transform that runs before the transform whose output it reads."""
    return (
        f"{reader}: reads {path}, which {writer} writes later, so it would read the values of the batch "
        f"before; give {writer} first (step transforms run before batch transforms)"
    )


def duplicate_field_message(path: str, first: str, second: str) -> str:
    """Return the error message for two transforms that write the same field."""
    return (
        f"{path}: two transforms write it, {first} and {second}; to chain them, let {first} write a field of "
        f"its own, such as agent.halfway, that {second} reads"
    )


def uses_of(transform: Transform, samples: Samples, leaves: Mapping[str, Any]) -> FieldUsage:
    """Return what a transform reads and writes. `leaves` holds the leaves of `samples`, keyed by path."""
    name = type(transform).__name__
    writes = {
        path: _identity(leaves[path]) if path in leaves else None
        for path in declared_paths(transform, samples)
    }
    reads = None
    if transform.reads is not None:
        reads = {}
        for path in reads_of(transform):
            try:
                field = field_at(samples, path)
            except ValueError as error:
                raise ValueError(missing_field(name, path, error)) from None
            reads.update({at: _identity(leaf) for at, leaf in buffer_leaves(field, path)})
    return FieldUsage(name, writes, reads)


def declared_paths(transform: Transform, samples: Samples) -> list[str]:
    """Return the paths of the leaves that a transform writes."""
    fields = fields_of(transform, samples)
    return [path for at, field in fields.items() for path, _ in buffer_leaves(field, at)]


def fields_of(transform: Transform, samples: Samples) -> Mapping[str, Any]:
    """Return the fields that a transform declares. Errors name the transform."""
    with naming(transform, "fields"):
        fields = transform.fields(samples)
    if not isinstance(fields, Mapping):
        name = type(transform).__name__
        raise TypeError(f"{name}: fields: expected a dict keyed by path, got {fields!r}")
    return fields


def reads_of(transform: Transform) -> Sequence[str]:
    """Return the paths that a transform declares to read. Raises TypeError for a string."""
    # A string is a sequence too, of its letters: forgotten brackets would name fields "e", "n", "v".
    reads = () if transform.reads is None else transform.reads
    if isinstance(reads, str):
        raise TypeError(
            f"{type(transform).__name__}: reads: expected a tuple of paths, got {reads!r}; "
            f"write ({reads!r},)"
        )
    return reads


def implements_final(transform: StepTransform) -> bool:
    """Return whether the transform's class overrides `transform_final`."""
    return type(transform).transform_final is not StepTransform.transform_final


def missing_final_error(name: str, path: str, reader: str | None) -> TypeError:
    """Return the error for a transform without `transform_final`.

    reader: name of the transform that reads `path`; None for the agent.
    """
    whose = "which the agent sees" if reader is None else f"which {reader} reads"
    return TypeError(
        f"{name} writes {path}, {whose}: implement transform_final(observation), so that truncated episodes "
        "and evaluations get final observations as the agent sees them"
    )


def writer_of(leaf: Any) -> str:
    """Return the name of the transform for which a leaf was allocated, or ""."""
    return leaf.block.writer if isinstance(leaf, Array) else ""


def identities_below(samples: Samples, path: str) -> dict[Any, str]:
    """Return a dict from memory identity to path for the leaves of a field; {} if the field is missing."""
    try:
        field = field_at(samples, path)
    except ValueError:
        return {}
    return {_identity(leaf): at for at, leaf in buffer_leaves(field, path)}


def _check_allocated(name: str, path: str, leaves: Mapping[str, Any]) -> None:
    hint = "pass the transform to allocate_samples too"
    if path not in leaves:
        raise ValueError(f"{name}: writes {path}, which was not allocated for it; {hint}")
    leaf = leaves[path]
    # Without a writer it was allocated by hand, which is allowed unless another path shows the same memory.
    if writer_of(leaf):
        return
    others = [at for at, other in leaves.items() if at != path and _is_same(other, leaf)]
    if others:
        raise ValueError(
            f"{name}: writes {path}, which is the same array as {others[0]} in these samples; "
            f"{hint}"
        )


def _is_same(leaf: Any, other: Any) -> bool:
    same: bool = _identity(leaf) == _identity(other)
    return same


def _identity(leaf: Any) -> Any:
    # In a tuple, so that an id cannot equal the key of a block.
    return leaf.block.key if isinstance(leaf, Array) else (id(leaf),)
