"""Experience cut into fragments, which a trainer can take from anywhere."""

from parllel.rollouts.fragment_cutter import FragmentCutter
from parllel.rollouts.sample_fragment import FragmentKey, SampleFragment
from parllel.rollouts.step_record import StepRecord

__all__ = ["FragmentCutter", "FragmentKey", "SampleFragment", "StepRecord"]
