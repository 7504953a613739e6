"""Transforms are given twice, for the buffer and for the sampler: both have to be the same."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
import pytest

from parllel.agents import NumpyHandler
from parllel.buffers import Field
from parllel.errors import notes_of
from parllel.samplers import BasicSampler, EvalSampler
from parllel.seeding import Seeds
from parllel.testing.dummy_agents import CountingAgent, fingerprint
from parllel.testing.dummy_envs import CountingEnv
from parllel.transforms import (
    BatchTransform,
    ClipRewards,
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
    StepTransform,
)
from parllel.types import BatchSpec
from parllel_patterns import allocate_eval_samples, allocate_samples, build_cages

SPEC = BatchSpec(4, 2)


class Halve(StepTransform):
    """As a user writes it who has read no more than the first paragraph."""

    def fields(self, samples):
        return {"agent.observation": Field(np.zeros(3, np.float32), padding=1)}

    def transform_step(self, samples, t, columns):
        samples.agent.observation[t, columns] = np.asarray(samples.env.observation[t, columns]) / 2


class HalveFinals(Halve):
    def transform_final(self, observation):
        return observation / 2


class Reverse(Halve):
    """Reads what another transform writes, and says so."""

    reads = ("agent.scaled",)

    def transform_step(self, samples, t, columns):
        samples.agent.observation[t, columns] = -np.asarray(samples.agent.scaled[t, columns])

    def transform_final(self, observation):
        return -observation


class CountSteps(StepTransform):
    """Writes a field beside what the agent sees."""

    def fields(self, samples):
        return {"agent.steps": Field(np.float32(0))}

    def transform_step(self, samples, t, columns):
        if t < SPEC.T:
            samples.agent.steps[t, columns] = t


class Workshop:
    """Makes parts, which are closed at the end."""

    def __init__(self, stack):
        self.stack = stack
        self.handler = NumpyHandler(CountingAgent(4))

    def cages(self, **env):
        cages = build_cages(
            partial(CountingEnv, lengths=3, end="truncated", **env), SPEC.B, seeds=Seeds(0)
        )
        for cage in cages:
            self.stack.callback(cage.close)
        return cages

    def sampler(self, allocated, step=(), batch=(), **env):
        cages = self.cages(**env)
        samples = allocate_samples(cages, SPEC, self.handler, allocated)
        return BasicSampler(SPEC, cages, self.handler, samples, step, batch)

    def eval_sampler(self, step, n_episodes=2, **env):
        cages = self.cages(**env)
        return EvalSampler(cages, self.handler, allocate_eval_samples(cages), n_episodes, step)


@pytest.fixture
def workshop():
    with contextlib.ExitStack() as stack:
        yield Workshop(stack)


# ---------------------------------------------------------------------- the same transforms


def test_a_transform_that_the_buffer_was_not_allocated_for(workshop):
    message = r"NormalizeObservations: writes agent\.observation, which is the same array as env\.observation"
    with pytest.raises(ValueError, match=message):
        workshop.sampler([], [NormalizeObservations()])
    with pytest.raises(ValueError, match=r"ClipRewards: writes env\.clipped_reward, .* allocated"):
        workshop.sampler([], [], [ClipRewards(-1, 1)])


def test_a_transform_that_the_sampler_was_not_given(workshop):
    normalize, estimate = NormalizeObservations(), EstimateAdvantage(0.9, 0.9)
    message = r"samples: agent\.observation was allocated for NormalizeObservations, .* not given"
    with pytest.raises(ValueError, match=message):
        workshop.sampler([normalize, estimate], [], [estimate])
    with pytest.raises(ValueError, match=r"samples: agent\.advantage was allocated for EstimateAd"):
        workshop.sampler([normalize, estimate], [normalize])


def test_one_transform_twice(workshop):
    normalize = NormalizeObservations()
    message = (
        r"agent\.observation: two transforms write it, .* and NormalizeObservations; to chain "
    )
    with pytest.raises(ValueError, match=message):
        workshop.sampler([normalize], [normalize, normalize])


def test_two_transforms_of_what_the_agent_sees_are_told_how_to_chain(workshop):
    message = (
        "agent.observation: two transforms write it, HalveFinals and NormalizeObservations; to chain "
        "them, let HalveFinals write a field of its own, such as .*, that NormalizeObservations reads"
    )
    with pytest.raises(ValueError, match=message):
        workshop.sampler([HalveFinals(), NormalizeObservations()])


def test_an_observation_that_the_agent_refuses_names_the_transform_that_made_it(workshop):
    class Short(HalveFinals):
        def fields(self, samples):
            return {"agent.observation": Field(np.zeros(2, np.float32), padding=1)}

    def refuse(observation, **inputs):
        raise ValueError(f"expected 3 numbers, got {observation.shape[1:]}")

    workshop.handler.agent.step = refuse
    with pytest.raises(ValueError, match=r"expected 3 numbers, got \(2,\)") as caught:
        workshop.sampler([CountSteps(), Short()])
    assert notes_of(caught.value)[1:] == [
        "agent.observation is float32 (2,), as Short.fields says; env.observation is float32 (3,)"
    ]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda o: None, r"Halve.*\.transform_final: expected an array \[2, 3\], got None"),
        (
            lambda o: o[:, :2],
            r"Halve.*\.transform_final: expected an array \[2, 3\], got an array \[2, 2\]",
        ),
        (
            lambda o: o[0],
            r"Halve.*\.transform_final: expected an array \[2, 3\], got an array \[3\]",
        ),
        (
            lambda o: {"x": o},
            r"Halve.*\.transform_final: expected an array \[2, 3\], got x \[2, 3\]",
        ),
    ],
    ids=["none", "size", "row", "parts"],
)
def test_wrong_final_observations_name_the_transform(workshop, returned, message):
    halve = HalveFinals()
    halve.transform_final = returned
    estimate = EstimateAdvantage(0.9, 0.9)
    sampler = workshop.sampler([halve, estimate], [halve], [estimate])
    with pytest.raises((TypeError, ValueError), match=message):
        sampler.collect_batch(0)
    eval_sampler = workshop.eval_sampler([halve])
    with pytest.raises((TypeError, ValueError), match=message):
        eval_sampler.collect_batch(0)


def test_equal_transforms_are_as_good_as_the_same(workshop):
    sampler = workshop.sampler([NormalizeObservations()], [NormalizeObservations()])
    sampler.collect_batch(0)


def test_mistakes_in_a_transform_are_named_with_it(workshop):
    class Elsewhere(CountSteps):
        def fields(self, samples):
            return {"agents.steps": Field(np.float32(0))}

    class Unpadded(HalveFinals):
        def fields(self, samples):
            return {"agent.observation": np.zeros(3, np.float32)}

    class NamesOnly(CountSteps):
        def fields(self, samples):
            return ["agent.steps"]

    with pytest.raises(ValueError, match=r"no node 'agents'") as caught:
        workshop.sampler([Elsewhere()])
    assert notes_of(caught.value) == ["in Elsewhere.fields"]
    with pytest.raises(ValueError, match=r"Unpadded: agent\.observation: expected padding=1, .* T"):
        workshop.sampler([Unpadded()])
    with pytest.raises(
        TypeError, match=r"NamesOnly: fields: expected a dict keyed by path, got \['agen"
    ):
        workshop.sampler([NamesOnly()])
    with pytest.raises(
        TypeError, match=r"transforms: expected transforms, got the class CountSteps; call it"
    ):
        workshop.sampler([CountSteps])


# ---------------------------------------------------------------------- their order


def test_a_field_is_read_after_it_was_written(workshop):
    rewards, estimate = NormalizeRewards(0.9), EstimateAdvantage(0.9, 0.9, "env.normalized_reward")
    message = (
        r"EstimateAdvantage: reads env\.normalized_reward, which NormalizeRewards writes later"
    )
    with pytest.raises(ValueError, match=message):
        workshop.sampler([rewards, estimate], [], [estimate, rewards])
    with pytest.raises(ValueError, match=message):
        workshop.sampler([estimate, rewards])
    clip = ClipRewards(-1, 1, source="env.normalized_reward")
    with pytest.raises(ValueError, match=r"ClipRewards: reads env\.norm.* NormalizeRewards writes"):
        workshop.sampler([clip, rewards])
    with pytest.raises(ValueError, match=r"NormalizeAdvantage: reads agent\.advantage, .* later"):
        workshop.sampler([estimate, NormalizeAdvantage()][::-1])


def test_what_a_step_transform_reads_is_there_before_the_batch_is(workshop):
    class Greedy(CountSteps):
        reads = ("env.clipped_reward",)

    clip, greedy = ClipRewards(-1, 1), Greedy()
    message = r"Greedy: reads env\.clipped_reward, which ClipRewards writes later"
    with pytest.raises(ValueError, match=message):
        workshop.sampler([clip, greedy], [greedy], [clip])


def test_a_field_that_the_handler_writes_is_nobodys(workshop):
    class Look(BatchTransform):
        reads = ("agent.final_value",)

        def transform_batch(self, samples):
            pass

    transforms = [Look(), EstimateAdvantage(0.9, 0.9)]
    workshop.sampler(transforms[::-1], [], transforms).collect_batch(0)


def test_what_is_read_has_to_be_there(workshop):
    class Misspelt(CountSteps):
        reads = ("env.rewards",)

    class OneString(CountSteps):
        reads = "env.reward"

    with pytest.raises(ValueError, match=r"Misspelt needs the field env\.rewards: 'rewards' is"):
        workshop.sampler([Misspelt()])
    with pytest.raises(TypeError, match=r"OneString: reads: expected a tuple of paths, got 'env"):
        workshop.sampler([OneString()])


# ---------------------------------------------------------------------- final observations


def test_what_the_agent_sees_needs_to_be_known_of_final_observations(workshop):
    halve = Halve()
    message = r"Halve writes agent\.observation, .* implement transform_final"
    with pytest.raises(TypeError, match=message):
        workshop.sampler([halve], [halve])
    with pytest.raises(TypeError, match=message):
        workshop.eval_sampler([halve])


def test_a_part_that_is_added_to_what_the_agent_sees(workshop):
    class AddSquare(StepTransform):
        """Show the agent the square of a part, beside all parts."""

        def fields(self, samples):
            return {"agent.observation.square": Field(np.zeros(1, np.float32), padding=1)}

        def transform_step(self, samples, t, columns):
            mark = np.asarray(samples.env.observation.mark[t, columns])
            samples.agent.observation.square[t, columns] = mark**2

        def transform_final(self, observation):
            return observation._replace(square=observation.mark**2)

    class AddSquareSilently(AddSquare):
        transform_final = StepTransform.transform_final

    silent = AddSquareSilently()
    message = r"AddSquareSilently writes agent\.observation\.square, .* transform_final"
    with pytest.raises(TypeError, match=message):
        workshop.sampler([silent], [silent], layout="dict")
    add = AddSquare()
    seen = []
    workshop.handler.final_value = lambda rows, columns, observation: seen.append(observation)
    samples, _ = workshop.sampler([add], [add], layout="dict").collect_batch(0)
    assert samples.agent.observation._fields == ("clock", "mark", "square")
    assert seen[0]._fields == ("clock", "mark", "square")
    np.testing.assert_array_equal(seen[0].square, seen[0].mark ** 2)


def test_values_of_truncated_episodes_are_those_of_what_the_agent_sees(workshop):
    halve, estimate = HalveFinals(), EstimateAdvantage(0.9, 0.9)
    sampler = workshop.sampler([halve, estimate], [halve], [estimate])
    samples, _ = sampler.collect_batch(0)
    raw, truncated = np.asarray(samples.env.observation), np.asarray(samples.env.truncated)
    assert truncated[2].all()
    # Counting environments say how far they are in the last number: 3 where they end.
    last = raw[2] + np.float32([0, 0, 1])
    final = np.asarray(samples.agent.final_value)[2]
    np.testing.assert_array_equal(final, fingerprint(last / 2).astype(np.float32))


def test_fields_beside_it_need_nothing(workshop):
    count = CountSteps()
    samples, _ = workshop.sampler([count], [count]).collect_batch(0)
    assert np.asarray(samples.agent.steps)[:, 0].tolist() == [0, 1, 2, 3]
    workshop.eval_sampler([count]).collect_batch(0)


def test_what_leads_to_what_the_agent_sees_counts_as_well(workshop):
    class Scale(Halve):
        def fields(self, samples):
            return {"agent.scaled": Field(np.zeros(3, np.float32), padding=1)}

        def transform_step(self, samples, t, columns):
            samples.agent.scaled[t, columns] = np.asarray(samples.env.observation[t, columns]) * 4

    class ScaleFinals(Scale):
        def transform_final(self, observation):
            return observation * 4

    class ReverseUnsaid(Reverse):
        reads = None

    steps = [Scale(), Reverse()]
    with pytest.raises(TypeError, match=r"Scale writes agent\.scaled, which Reverse reads"):
        workshop.sampler(steps, steps)
    steps = [ScaleFinals(), ReverseUnsaid()]
    with pytest.raises(ValueError, match=r"ReverseUnsaid: reads: expected .* whether ScaleFinals"):
        workshop.sampler(steps, steps)
    steps, estimate = [ScaleFinals(), Reverse()], EstimateAdvantage(0.9, 0.9)
    samples, _ = workshop.sampler([*steps, estimate], steps, [estimate]).collect_batch(0)
    last = np.asarray(samples.env.observation)[2] + np.float32([0, 0, 1])
    final = np.asarray(samples.agent.final_value)[2]
    np.testing.assert_array_equal(final, fingerprint(last * -4).astype(np.float32))
    with pytest.raises(ValueError, match=r"step_transforms: .* agent\.scaled .* ScaleFinals"):
        workshop.eval_sampler(steps[1:])


def test_a_field_that_the_agent_does_not_see_leaves_final_observations_alone(workshop):
    beside, estimate = NormalizeObservations(target="agent.beside"), EstimateAdvantage(0.9, 0.9)
    sampler = workshop.sampler([beside, estimate], [beside], [estimate])
    for _ in range(2):
        samples, _ = sampler.collect_batch(0)
    truncated = np.argwhere(np.asarray(samples.env.truncated))
    assert len(truncated)
    raw, final = np.asarray(samples.env.observation), np.asarray(samples.agent.final_value)
    for t, b in truncated:
        last = raw[t, b] + np.float32([0, 0, 1])
        assert final[t, b] == fingerprint(last[np.newaxis]).astype(np.float32)[0]


def test_the_agent_may_see_another_shape_than_the_environments_write(workshop):
    class Squares(StepTransform):
        """Append squares: six numbers for three."""

        def fields(self, samples):
            return {"agent.observation": Field(np.zeros(6, np.float32), padding=1)}

        def transform_step(self, samples, t, columns):
            raw = np.asarray(samples.env.observation[t, columns])
            samples.agent.observation[t, columns] = self.transform_final(raw)

        def transform_final(self, observation):
            return np.concatenate([observation, observation**2], axis=1)

    class OfSix(CountingAgent):
        def step(self, observation, **more):
            assert observation.shape[1:] == (6,)
            return super().step(observation, **more)

    workshop.handler = NumpyHandler(OfSix(4))
    squares = Squares()
    samples, _ = workshop.sampler([squares], [squares]).collect_batch(0)
    assert samples.agent.observation.shape == (4, 2, 6)
    workshop.eval_sampler([squares]).collect_batch(0)


# ---------------------------------------------------------------------- evaluation


def test_evaluation_shows_the_agent_what_training_does(workshop):
    normalize = NormalizeObservations()
    workshop.sampler([normalize], [normalize])
    message = (
        r"step_transforms: .* agent\.observation .* NormalizeObservations, got \[\]; .* training"
    )
    with pytest.raises(ValueError, match=message):
        workshop.eval_sampler([])
    with pytest.raises(ValueError, match=message.replace(r"\[\]", r"\['CountSteps'\]")):
        workshop.eval_sampler([CountSteps()])
    workshop.eval_sampler([normalize]).collect_batch(0)


def test_evaluation_with_what_training_does_without(workshop):
    workshop.sampler([])
    with pytest.raises(ValueError, match=r"NormalizeObservations: .* trained on env\.observation"):
        workshop.eval_sampler([NormalizeObservations()])
    workshop.eval_sampler([]).collect_batch(0)


def test_an_evaluation_that_was_built_first_notices_later(workshop):
    normalize = NormalizeObservations()
    eval_sampler = workshop.eval_sampler([])
    eval_sampler.collect_batch(0)
    workshop.sampler([normalize], [normalize])
    with pytest.raises(ValueError, match=r"agent\.observation .* NormalizeObservations, got \[\]"):
        eval_sampler.collect_batch(0)


class Misshapen(HalveFinals):
    """Declares three numbers, and computes two where it is asked to."""

    def __init__(self, method):
        self.method = method

    def cut(self, array, method):
        return array[..., :2] if method == self.method else array

    def transform_step(self, samples, t, columns):
        raw = np.asarray(samples.env.observation[t, columns])
        samples.agent.observation[t, columns] = self.cut(raw, "transform_step")

    def transform_final(self, observation):
        return observation + self.cut(observation, "transform_final")

    def end_batch(self, samples):
        samples.agent.observation[...] = self.cut(np.zeros((SPEC.T, SPEC.B, 3)), "end_batch")


class MisshapenReward(BatchTransform):
    def fields(self, samples):
        return {"env.shaped_reward": Field(np.float32(0))}

    def transform_batch(self, samples):
        samples.env.shaped_reward[...] = np.asarray(samples.env.reward)[:-1]


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("transform_step", "transform_step, row 0"),
        ("transform_final", "transform_final"),
        ("end_batch", "end_batch"),
    ],
)
def test_a_step_transform_that_writes_a_wrong_shape_is_named(workshop, method, where):
    transform, estimate = Misshapen(method), EstimateAdvantage(0.9, 0.9)
    sampler = workshop.sampler([transform, estimate], [transform], [estimate])
    with pytest.raises(ValueError, match="broadcast") as caught:
        sampler.collect_batch(0)
    assert notes_of(caught.value) == [f"in Misshapen.{where}"]


def test_a_batch_transform_that_writes_a_wrong_shape_is_named(workshop):
    transform = MisshapenReward()
    sampler = workshop.sampler([transform], [], [transform])
    with pytest.raises(ValueError, match="broadcast") as caught:
        sampler.collect_batch(0)
    assert notes_of(caught.value) == ["in MisshapenReward.transform_batch"]
