"""Transforms compute fields of a batch from other fields, in numpy and compiled loops."""

from parllel.transforms.advantage import EstimateAdvantage, estimate_advantage
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.clip_rewards import ClipRewards
from parllel.transforms.estimate_vtrace import EstimateVtrace, vtrace
from parllel.transforms.field_allocation import (
    add_transform_fields,
    note_seen_observation,
    seen_observation_example,
)
from parllel.transforms.field_checks import check_fields
from parllel.transforms.final_observations import FinalObservations
from parllel.transforms.importance_weights import ImportanceWeights
from parllel.transforms.multi_agent_advantage import (
    EstimateMultiAgentAdvantage,
    NormalizeMultiAgentAdvantage,
)
from parllel.transforms.normalize_advantage import NormalizeAdvantage
from parllel.transforms.normalize_observations import NormalizeObservations
from parllel.transforms.normalize_rewards import NormalizeRewards
from parllel.transforms.record_video import RecordVideo, every_nth
from parllel.transforms.running_statistics import RunningMeanStd
from parllel.transforms.transform import BatchTransform, StepTransform, Transform

__all__ = [
    "BatchMemo",
    "BatchTransform",
    "ClipRewards",
    "EstimateAdvantage",
    "EstimateMultiAgentAdvantage",
    "EstimateVtrace",
    "FinalObservations",
    "ImportanceWeights",
    "NormalizeAdvantage",
    "NormalizeMultiAgentAdvantage",
    "NormalizeObservations",
    "NormalizeRewards",
    "RecordVideo",
    "RunningMeanStd",
    "StepTransform",
    "Transform",
    "add_transform_fields",
    "check_fields",
    "estimate_advantage",
    "every_nth",
    "note_seen_observation",
    "seen_observation_example",
    "vtrace",
]
