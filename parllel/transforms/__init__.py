"""Transforms compute fields of a batch from other fields, in numpy and compiled loops."""

from parllel.transforms.advantage import EstimateAdvantage, estimate_advantage
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.clip_rewards import ClipRewards
from parllel.transforms.estimate_vtrace import EstimateVtrace, vtrace
from parllel.transforms.field_allocation import (
    add_transform_fields,
    example_of_what_is_seen,
    note_what_is_seen,
)
from parllel.transforms.field_checks import check_fields, check_outputs_are_read, missing_field
from parllel.transforms.final_chain import FinalChain, check_finals_are_known
from parllel.transforms.final_observations import FinalObservations
from parllel.transforms.final_transforms import FinalTransforms
from parllel.transforms.importance_weights import ImportanceWeights
from parllel.transforms.multi_agent_advantage import EstimateMultiAgentAdvantage
from parllel.transforms.naming import naming, note_transform
from parllel.transforms.normalize_advantage import NormalizeAdvantage
from parllel.transforms.normalize_multi_agent_advantage import NormalizeMultiAgentAdvantage
from parllel.transforms.normalize_observations import NormalizeObservations
from parllel.transforms.normalize_rewards import NormalizeRewards
from parllel.transforms.picture_grid import picture_grid
from parllel.transforms.record_video import RecordVideo, pictures_of
from parllel.transforms.recording_schedule import RecordingSchedule, capped_cubic, every_nth
from parllel.transforms.returns import DiscountedReturns, discounted_returns
from parllel.transforms.running_statistics import RunningMeanStd
from parllel.transforms.transform import (
    BatchTransform,
    StepTransform,
    Transform,
    body_of,
    optional_body_of,
    row_after,
)

__all__ = [
    "BatchMemo",
    "BatchTransform",
    "ClipRewards",
    "DiscountedReturns",
    "EstimateAdvantage",
    "EstimateMultiAgentAdvantage",
    "EstimateVtrace",
    "FinalChain",
    "FinalObservations",
    "FinalTransforms",
    "ImportanceWeights",
    "NormalizeAdvantage",
    "NormalizeMultiAgentAdvantage",
    "NormalizeObservations",
    "NormalizeRewards",
    "RecordVideo",
    "RecordingSchedule",
    "RunningMeanStd",
    "StepTransform",
    "Transform",
    "add_transform_fields",
    "body_of",
    "capped_cubic",
    "check_fields",
    "check_finals_are_known",
    "check_outputs_are_read",
    "discounted_returns",
    "estimate_advantage",
    "every_nth",
    "example_of_what_is_seen",
    "missing_field",
    "naming",
    "note_transform",
    "note_what_is_seen",
    "optional_body_of",
    "picture_grid",
    "pictures_of",
    "row_after",
    "vtrace",
]
