"""Trees of arrays: nodes, samples, allocation, and their way to other processes."""

from parllel.buffers.allocation import Field, add_fields, allocate, check_names, insert_field
from parllel.buffers.batches import (
    ByBatch,
    batch_number,
    bound_anew,
    count_batches,
    follows_batches,
    most_kept,
    moving,
    shown_number,
)
from parllel.buffers.child_conversation import ChildConversation
from parllel.buffers.conversation import FIRST_WORDS, HEAD, Conversation, reason_of
from parllel.buffers.description import describe_arrays, summarize_arrays
from parllel.buffers.link import REGISTER, Link, Ref
from parllel.buffers.named_tuple import NamedArrayTuple, NamedTuple
from parllel.buffers.path_rules import DtypeRules, StorageRules
from parllel.buffers.paths import Path, dotted, field_at, leaf_paths, part_at, parts_of
from parllel.buffers.samples import AgentSamples, EnvSamples, Samples
from parllel.buffers.tree import (
    buffer_arrays,
    buffer_asarray,
    buffer_close,
    buffer_get_attr,
    buffer_leaves,
    buffer_map,
    buffer_method,
    buffer_rotate,
    buffer_set_attr,
    named_map,
)

__all__ = [
    "FIRST_WORDS",
    "HEAD",
    "REGISTER",
    "AgentSamples",
    "ByBatch",
    "ChildConversation",
    "Conversation",
    "DtypeRules",
    "EnvSamples",
    "Field",
    "Link",
    "NamedArrayTuple",
    "NamedTuple",
    "Path",
    "Ref",
    "Samples",
    "StorageRules",
    "add_fields",
    "allocate",
    "batch_number",
    "bound_anew",
    "buffer_arrays",
    "buffer_asarray",
    "buffer_close",
    "buffer_get_attr",
    "buffer_leaves",
    "buffer_map",
    "buffer_method",
    "buffer_rotate",
    "buffer_set_attr",
    "check_names",
    "count_batches",
    "describe_arrays",
    "dotted",
    "field_at",
    "follows_batches",
    "insert_field",
    "leaf_paths",
    "most_kept",
    "moving",
    "named_map",
    "part_at",
    "parts_of",
    "reason_of",
    "shown_number",
    "summarize_arrays",
]
