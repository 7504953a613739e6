"""Every transform by the contract of its kind, and the contracts by transforms that break them."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from parllel.buffers import Field, NamedTuple, add_fields
from parllel.testing.dummy_transforms import RecordingBatchTransform, RecordingStepTransform
from parllel.testing.transform_contract import BatchTransformContract, StepTransformContract
from parllel.testing.transform_samples import allocate_numbers
from parllel.transforms import (
    BatchTransform,
    ClipRewards,
    EstimateAdvantage,
    EstimateMultiAgentAdvantage,
    EstimateVtrace,
    FinalObservations,
    ImportanceWeights,
    NormalizeAdvantage,
    NormalizeMultiAgentAdvantage,
    NormalizeObservations,
    NormalizeRewards,
    RecordVideo,
    StepTransform,
    Transform,
)
from parllel.transforms.returns import DiscountedReturns

DICT = {"position": np.zeros((2, 3), np.float32), "speed": np.float32(0)}


class TestNormalizeObservations(StepTransformContract):
    def make_transform(self):
        return NormalizeObservations(clip=1.5)


class TestNormalizeImages(TestNormalizeObservations):
    observation = np.zeros((2, 2), np.uint8)


class TestNormalizeDicts(TestNormalizeObservations):
    observation = DICT


class TestNormalizePartsOfDicts(StepTransformContract):
    observation = DICT

    def make_transform(self):
        return NormalizeObservations("env.observation.speed", clip=1.5)


class TestNormalizeBesideWhatTheAgentSees(StepTransformContract):
    def make_transform(self):
        return NormalizeObservations(target="agent.beside")


class TestRecordingStepTransform(StepTransformContract):
    def make_transform(self):
        return RecordingStepTransform("one", scale=2.0, shift=0.5, drift=3.0)


class TestRecordingBatchTransform(BatchTransformContract):
    def make_transform(self):
        return RecordingBatchTransform("one", scale=2.0)


class TestNormalizeRewards(BatchTransformContract):
    def make_transform(self):
        return NormalizeRewards(0.9)


class TestClipRewards(BatchTransformContract):
    def make_transform(self):
        return ClipRewards(-1, 1)


class TestEstimateAdvantage(BatchTransformContract):
    def make_transform(self):
        return EstimateAdvantage(0.9, 0.8)


class TestDiscountedReturns(BatchTransformContract):
    def make_transform(self):
        return DiscountedReturns(0.9)


class TestReturnsWithoutValues(BatchTransformContract):
    def make_transform(self):
        return DiscountedReturns(0.9, value=None)


class WithAdvantage(BatchTransformContract):
    def make_samples(self, valid):
        fields = {"agent.advantage": Field(np.float32(0))}
        return add_fields(super().make_samples(valid), fields, self.batch_spec)


class TestNormalizeAdvantage(WithAdvantage):
    in_place = ("agent.advantage",)

    def make_transform(self):
        return NormalizeAdvantage()


class TestNormalizeAdvantageElsewhere(WithAdvantage):
    def make_transform(self):
        return NormalizeAdvantage(target="agent.normalized_advantage")


class Evaluated(BatchTransformContract):
    def make_samples(self, valid):
        info = {"value": np.float32(0), "log_prob": np.float32(0)}
        samples = allocate_numbers(
            self.batch_spec, observation=self.observation, agent_info=info, valid=valid
        )
        fields = {
            "agent.learner_log_prob": Field(np.float32(0)),
            "agent.learner_value": Field(np.float32(0), padding=1),
            "agent.learner_final_value": Field(np.float32(0)),
        }
        return add_fields(samples, fields, self.batch_spec)


class TestEstimateVtrace(Evaluated):
    def make_transform(self):
        return EstimateVtrace(0.9, gae_lambda=0.8, rho_clip=1.5)


class TestImportanceWeights(Evaluated):
    def make_transform(self):
        return ImportanceWeights(2.0)


class TestFinalObservations(BatchTransformContract):
    observation = DICT

    def make_transform(self):
        return FinalObservations()


class SeveralAgents(BatchTransformContract):
    def make_samples(self, valid):
        agents = ("fox", "hen")
        return allocate_numbers(
            self.batch_spec,
            observation=self.observation,
            agent_info=NamedTuple(
                value={agent: Field(np.float32(0), padding=1) for agent in agents}
            ),
            env_info=NamedTuple(reward=dict.fromkeys(agents, np.float32(0))),
            valid=valid,
        )


class TestEstimateMultiAgentAdvantage(SeveralAgents):
    def make_transform(self):
        return EstimateMultiAgentAdvantage(0.9, 0.8)


class TestNormalizeMultiAgentAdvantage(SeveralAgents):
    in_place = ("agent.advantage",)
    # Whose fields say which agents there are.
    also_reads = ("env.valid", "agent.agent_info.value")

    def make_samples(self, valid):
        zeros = {agent: Field(np.float32(0)) for agent in ("fox", "hen")}
        fields = {"agent.advantage": zeros}
        return add_fields(super().make_samples(valid), fields, self.batch_spec)

    def make_transform(self):
        return NormalizeMultiAgentAdvantage()


class TestRecordVideo(BatchTransformContract):
    observation = np.zeros((4, 5, 3), np.uint8)

    def make_transform(self):
        return RecordVideo(lambda number, clip: None)


def shipped():
    """Return the classes of transforms that parllel offers."""
    import parllel.transforms

    found = [getattr(parllel.transforms, name) for name in parllel.transforms.__all__]
    kinds = (Transform, StepTransform, BatchTransform)
    return {
        one
        for one in found
        if isinstance(one, type) and issubclass(one, Transform) and one not in kinds
    }


def test_all_that_are_shipped_are_tested():
    suites = [one for name, one in globals().items() if name.startswith("Test")]
    assert shipped() <= {type(suite().make_transform()) for suite in suites}


# ---------------------------------------------------------------------- who breaks it


class Sound(StepTransform):
    """Write observations less their mean so far."""

    reads = ("env.observation",)

    def __init__(self):
        self.sum, self.count = np.zeros(3), 0

    @property
    def mean(self):
        return self.sum / max(self.count, 1)

    def fields(self, samples):
        return {"agent.observation": Field(np.zeros(3, np.float32), padding=1)}

    def transform_step(self, samples, t, columns):
        raw = np.asarray(samples.env.observation[t, columns])
        samples.agent.observation[t, columns] = self.transform_final(raw)

    def transform_final(self, observation):
        return (observation - self.mean).astype(np.float32)

    def end_batch(self, samples):
        rows = np.asarray(samples.env.observation)
        if "valid" in samples.env._fields:
            rows = rows[np.asarray(samples.env.valid)]
        rows = rows.reshape(-1, 3)
        self.sum, self.count = self.sum + rows.sum(0), self.count + len(rows)

    def state(self):
        return {"sum": self.sum.copy(), "count": self.count}

    def load_state(self, state):
        self.sum, self.count = np.array(state["sum"]), state["count"]


class ForgetsFinals(Sound):
    transform_final = StepTransform.transform_final

    def transform_step(self, samples, t, columns):
        raw = np.asarray(samples.env.observation[t, columns])
        samples.agent.observation[t, columns] = raw - self.mean


class OtherFinals(Sound):
    def transform_final(self, observation):
        return (observation - self.mean * 0.9).astype(np.float32)

    transform_step = ForgetsFinals.transform_step


class FinalsInPlace(Sound):
    def transform_final(self, observation):
        observation -= self.mean.astype(np.float32)
        return observation

    transform_step = ForgetsFinals.transform_step


class WideFinals(Sound):
    def transform_final(self, observation):
        return np.asarray(observation - self.mean, np.float64)


class Overwrites(Sound):
    def transform_step(self, samples, t, columns):
        super().transform_step(samples, t, columns)
        samples.env.observation[t, columns] = 0


class ReadsMore(Sound):
    def transform_step(self, samples, t, columns):
        super().transform_step(samples, t, columns)
        if t < len(samples.env.reward):
            reward = np.asarray(samples.env.reward[t, columns])
            np.asarray(samples.agent.observation[t, columns])[:, 0] += reward


class AddsUp(Sound):
    def transform_step(self, samples, t, columns):
        seen = samples.agent.observation[t, columns]
        seen[...] = np.asarray(seen) + np.asarray(samples.env.observation[t, columns])


class LosesState(Sound):
    def state(self):
        return {}

    def load_state(self, state):
        pass


class StaysInItsBuffer(Sound):
    def bind(self, samples):
        if not hasattr(self, "samples"):
            self.samples = samples

    def transform_step(self, samples, t, columns):
        super().transform_step(self.samples, t, columns)


class CountsAll(Sound):
    def end_batch(self, samples):
        rows = np.asarray(samples.env.observation).reshape(-1, 3)
        self.sum, self.count = self.sum + rows.sum(0), self.count + len(rows)


class MixesEnvironments(Sound):
    def transform_step(self, samples, t, columns):
        raw = np.asarray(samples.env.observation[t, columns])
        samples.agent.observation[t, columns] = raw - raw.mean(axis=0)


class WritesAllColumns(Sound):
    def transform_step(self, samples, t, columns):
        super().transform_step(samples, t, slice(None))


class LooksAhead(Sound):
    def transform_step(self, samples, t, columns):
        raw = np.asarray(samples.env.observation)[min(t + 1, 4), columns]
        samples.agent.observation[t, columns] = raw


class CountsAtOnce(Sound):
    def transform_step(self, samples, t, columns):
        super().transform_step(samples, t, columns)
        self.count += 1


class AsksForMore(Sound):
    def fields(self, samples):
        more = {"agent.more": np.float32(0)} if "observation" in samples.agent._fields else {}
        return {**super().fields(samples), **{path: Field(cell) for path, cell in more.items()}}


class WritesNothing(Sound):
    def transform_step(self, samples, t, columns):
        pass


BREACHES = {
    Overwrites: "it_writes_what_it_declares_and_nothing_else",
    WritesNothing: "it_writes_what_it_declares_and_nothing_else",
    AsksForMore: "it_asks_for_the_same_fields_when_they_are_there",
    ReadsMore: "it_reads_no_more_than_it_declares",
    AddsUp: "its_fields_begin_anew_with_each_batch",
    LosesState: "a_transform_that_takes_its_state_goes_on_as_it_would",
    StaysInItsBuffer: "it_goes_on_in_another_buffer",
    CountsAll: "what_was_not_sampled_does_not_count",
    MixesEnvironments: "environments_may_come_in_groups",
    WritesAllColumns: "it_writes_the_given_cells_alone",
    LooksAhead: "a_row_does_not_depend_on_later_ones",
    CountsAtOnce: "statistics_stand_still_within_a_batch",
    ForgetsFinals: "final_observations_become_what_steps_show",
    OtherFinals: "final_observations_become_what_steps_show",
    FinalsInPlace: "final_observations_become_what_steps_show",
    WideFinals: "final_observations_become_what_steps_show",
}


class TestSound(StepTransformContract):
    def make_transform(self):
        return Sound()


@pytest.mark.parametrize("cls", BREACHES, ids=lambda cls: cls.__name__)
def test_who_breaks_the_contract_is_found(cls):
    class Suite(StepTransformContract):
        def make_transform(self):
            return cls()

    tests = {name.removeprefix("test_") for name in dir(Suite) if name.startswith("test_")}
    assert BREACHES[cls] in tests
    with pytest.raises(AssertionError, match=r"."):
        getattr(Suite(), f"test_{BREACHES[cls]}")()


def test_every_rule_for_steps_has_somebody_who_breaks_it():
    names = {name for name in dir(StepTransformContract) if name.startswith("test_")}
    assert names == {f"test_{rule}" for rule in BREACHES.values()}


def test_the_transforms_of_the_document_pass():
    text = (Path(__file__).parents[2] / "docs" / "your_own.md").read_text()
    page: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "parllel.transforms import" in block or "transform_contract import" in block:
            exec(block, page)
    suites = [page["TestSignedRoots"], page["TestPenaliseFalls"]]
    tests = [(suite, name) for suite in suites for name in dir(suite) if name.startswith("test_")]
    assert len(tests) > 15
    for suite, name in tests:
        getattr(suite(), name)()


def test_a_suite_says_what_is_missing():
    with pytest.raises(
        NotImplementedError, match=r"must define make_transform\(\) to create a transform"
    ):
        StepTransformContract().make_transform()
    assert partial(BatchTransformContract)().observation.shape == (3,)
