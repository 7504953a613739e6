"""Trees of arrays: nodes, samples, allocation, and their transfer to other processes."""

from parllel.buffers.allocation import Field, add_fields, allocate, check_names, insert_field
from parllel.buffers.description import describe_arrays, summarize_arrays
from parllel.buffers.large_array import LargeArray
from parllel.buffers.named_tuple import NamedArrayTuple, NamedTuple
from parllel.buffers.path_rules import DtypeRules, StorageRules
from parllel.buffers.samples import AgentSamples, EnvSamples, Samples
from parllel.buffers.tree import buffer_asarray, buffer_leaves, buffer_map

__all__ = [
    "AgentSamples",
    "DtypeRules",
    "EnvSamples",
    "Field",
    "LargeArray",
    "NamedArrayTuple",
    "NamedTuple",
    "Samples",
    "StorageRules",
    "add_fields",
    "allocate",
    "buffer_asarray",
    "buffer_leaves",
    "buffer_map",
    "check_names",
    "describe_arrays",
    "insert_field",
    "summarize_arrays",
]
