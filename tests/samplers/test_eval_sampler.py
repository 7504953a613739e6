from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
from sampler_cages import CAGES, FORKED, SINGLE, assert_same, grouped, several

from parllel.errors import EpisodeTooLongError
from parllel.samplers import BasicSampler, EvalSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingStepTransform
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.testing.resume_contract import assert_equal_states
from parllel.testing.sampler_contract import DOUBLED, ENVIRONMENTS, SHIFTED
from parllel.testing.sampler_setup import DISCOUNT, SamplerSetup
from parllel.testing.simulated_batches import observer
from parllel.testing.transform_samples import numbers_of


def eval_sampler_of(parts, n_episodes, handler=None, step_transforms=None, **options):
    return EvalSampler(
        parts.cages,
        parts.handler if handler is None else handler,
        parts.samples,
        n_episodes,
        parts.step_transforms if step_transforms is None else step_transforms,
        **options,
    )


def play(setup, quotas, n_evaluations, number=0):
    """Play whole episodes with the agent's best actions, environment after environment."""
    envs = [factory() for factory in setup.factories]
    result = [[] for _ in range(n_evaluations)]
    for env, seed, quota in zip(envs, setup.cage_seeds(), quotas, strict=True):
        look = observer(setup, env.observation_space, number)
        word = int(seed.generate_state(2)[0])
        for evaluation in range(n_evaluations):
            observation, _ = env.reset(seed=word)
            word = None
            for _ in range(quota):
                rewards, over = [], False
                while not over:
                    action = int(np.floor(look(observation)[1])) % int(env.action_space.n)
                    observation, reward, terminated, truncated, _ = env.step(action)
                    rewards.append(reward)
                    over = terminated or truncated
                observation, _ = env.reset()
                discounted = sum(r * DISCOUNT**i for i, r in enumerate(rewards))
                result[evaluation].append((len(rewards), sum(rewards), discounted))
    return result


def numbers(trajs):
    return [(traj.length, traj.return_, traj.discounted_return) for traj in trajs]


KINDS = {**CAGES, "late groups": several(grouped(3, late=True), (3, 1))}


@pytest.mark.parametrize("placement", KINDS.values(), ids=KINDS)
def test_each_environment_plays_its_share(placement):
    setup = SamplerSetup(1, ENVIRONMENTS, **placement)
    expected = play(setup, (3, 3, 2, 2), 2)
    with eval_sampler_of(setup.build(), 10) as sampler:
        for trajs in expected:
            assert numbers(sampler.collect_batch(0)[1]) == trajs


@pytest.mark.parametrize("storage", ["local", "shared", "managed"])
@pytest.mark.parametrize("placement", [SINGLE, FORKED], ids=["Cage", "ProcessCage"])
def test_storages(storage, placement):
    factories = tuple(partial(make, layout="dict") for make in ENVIRONMENTS)
    setup = SamplerSetup(1, factories, storage=storage, seed=2, **placement)
    with eval_sampler_of(setup.build(), 5) as sampler:
        assert numbers(sampler.collect_batch(0)[1]) == play(setup, (2, 1, 1, 1), 1)[0]


def test_short_episodes_are_not_preferred():
    # The first three episodes to end anywhere would all be short ones.
    setup = SamplerSetup(1, (partial(CountingEnv, 50), partial(CountingEnv, 2)))
    with eval_sampler_of(setup.build(), 4) as sampler:
        assert [traj.length for traj in sampler.collect_batch(0)[1]] == [50, 50, 2, 2]


@pytest.mark.parametrize(("n_episodes", "quotas"), [(3, (1, 1, 1)), (4, (2, 1, 1)), (8, (3, 3, 2))])
def test_what_does_not_divide_goes_to_the_first(n_episodes, quotas):
    factories = tuple(partial(CountingEnv, length) for length in (1, 2, 3))
    with eval_sampler_of(SamplerSetup(1, factories).build(), n_episodes) as sampler:
        lengths = [traj.length for traj in sampler.collect_batch(0)[1]]
    assert lengths == [1] * quotas[0] + [2] * quotas[1] + [3] * quotas[2]


def test_finished_environments_are_left_in_peace():
    factories = tuple(partial(CountingEnv, length) for length in (2, 9))
    parts = SamplerSetup(1, factories).build()
    with eval_sampler_of(parts, 2) as sampler:
        sampler.collect_batch(0)
        assert [len(cage.actions) for cage in parts.cages] == [2, 9]


def test_transforms_are_read_as_they_stand():
    setup = SamplerSetup(1, ENVIRONMENTS, step_transforms=(DOUBLED, SHIFTED))
    parts = setup.build()
    for transform in parts.step_transforms:
        transform.affine.batches = 3
    with eval_sampler_of(parts, 4) as sampler:
        trajs = sampler.collect_batch(0)[1]
        assert numbers(trajs) == play(setup, (1, 1, 1, 1), 1, number=3)[0]
        assert numbers(trajs) != play(setup, (1, 1, 1, 1), 1, number=0)[0]
    assert [transform.affine.batches for transform in parts.step_transforms] == [3, 3]


def train(evaluate_after):
    """Train for six batches, evaluating after some, and return all that training made."""
    setup = SamplerSetup(3, ENVIRONMENTS, step_transforms=(DOUBLED, SHIFTED))
    parts = setup.build()
    eval_parts = SamplerSetup(1, ENVIRONMENTS[:2], seed=77).build()
    record = []
    with (
        parts.sampler(BasicSampler) as sampler,
        eval_sampler_of(eval_parts, 3, parts.handler, parts.step_transforms) as eval_sampler,
    ):
        for batch in range(6):
            samples, trajs = sampler.collect_batch(batch)
            before = numbers_of(samples)
            state = copy.deepcopy({"sampler": sampler.state(), "handler": parts.handler.state()})
            if batch in evaluate_after:
                assert len(eval_sampler.collect_batch(batch)[1]) == 3
                now = {"sampler": sampler.state(), "handler": parts.handler.state()}
                assert_equal_states(now, state)
                assert_same(numbers_of(samples), before)
            record.append((before, numbers(trajs), sampler.state()))
    return record


def test_training_continues_as_if_nothing_had_been_evaluated():
    with_evaluations, without = train({0, 1, 4}), train(())
    for (fields, *rest), (other_fields, *other_rest) in zip(with_evaluations, without, strict=True):
        assert rest[0] == other_rest[0]
        assert_equal_states(rest[1], other_rest[1])
        assert_same(fields, other_fields)


def test_an_evaluation_before_training_changes_nothing_either():
    setup = SamplerSetup(3, ENVIRONMENTS)
    batches = []
    for evaluations in (0, 2):
        parts = setup.build()
        eval_parts = SamplerSetup(1, ENVIRONMENTS[:1], seed=77).build()
        with (
            parts.sampler(BasicSampler) as sampler,
            eval_sampler_of(eval_parts, 1, parts.handler) as eval_sampler,
        ):
            for _ in range(evaluations):
                eval_sampler.collect_batch(0)
            samples, _ = sampler.collect_batch(0)
            batches.append(numbers_of(samples))
    assert_same(*batches)


@pytest.mark.parametrize("placement", [SINGLE, FORKED], ids=["Cage", "ProcessCage"])
def test_episodes_that_do_not_end_raise_and_can_be_tried_again(placement):
    setup = SamplerSetup(
        1, (partial(CountingEnv, (3, 9, 5)), partial(CountingEnv, (2, 2, 4))), **placement
    )
    parts = setup.build()
    with eval_sampler_of(parts, 2, max_steps=6) as sampler:
        assert [traj.length for traj in sampler.collect_batch(0)[1]] == [3, 2]
        # Resetting everybody begins the third episode of the first, and the third of the second.
        assert [traj.length for traj in sampler.collect_batch(0)[1]] == [5, 4]
    with eval_sampler_of(SamplerSetup(1, setup.factories).build(), 4, max_steps=6) as sampler:
        handler = sampler.handler
        with pytest.raises(
            EpisodeTooLongError, match=r"environments \[0\] have not played .* after 6 steps"
        ):
            sampler.collect_batch(0)
        assert handler.agent.mode == "sample"
        # What the evaluation left behind is not counted in the next one.
        with pytest.raises(EpisodeTooLongError, match=r"environments \[0\]"):
            sampler.collect_batch(0)


def test_exactly_as_many_steps_as_are_allowed_are_enough():
    factories = (partial(CountingEnv, 5), partial(CountingEnv, 2))
    with eval_sampler_of(SamplerSetup(1, factories).build(), 2, max_steps=5) as sampler:
        assert [traj.length for traj in sampler.collect_batch(0)[1]] == [5, 2]
    with (
        eval_sampler_of(SamplerSetup(1, factories).build(), 2, max_steps=4) as sampler,
        pytest.raises(EpisodeTooLongError, match=r"environments \[0\] have not"),
    ):
        sampler.collect_batch(0)


def test_an_environment_that_raises_ends_eval_mode():
    setup = SamplerSetup(1, (CountingEnv, partial(FaultyEnv, "step", number=3)))
    parts = setup.build()
    with eval_sampler_of(parts, 2) as sampler:
        with pytest.raises(DummyFaultError, match="step number 3 failed"):
            sampler.collect_batch(0)
        assert parts.handler.agent.mode == "sample"


def test_without_their_states_environments_play_other_episodes_than_at_the_start():
    setup = SamplerSetup(1, (partial(CountingEnv, 2),) * 2)

    def marks(state, n_evaluations=1):
        """Play on, and return the mark of each environment and the state after that."""
        with eval_sampler_of(setup.build(), 2) as sampler:
            sampler.load_state(state)
            for _ in range(n_evaluations):
                samples, _ = sampler.collect_batch(0)
            return np.array(samples.env.observation)[0, :, 0].tolist(), sampler.state()

    first, behind_one = marks({"evaluations": 0})
    _, behind_two = marks({"evaluations": 0}, 2)
    assert marks(behind_one)[0] == first  # the mark is part of their state
    found = [first]
    for state in (behind_one, behind_two):
        del state["environments"]
        found.append(marks(state)[0])
        assert marks(state)[0] == found[-1]
    assert len({mark for each in found for mark in each}) == 6


def test_without_their_states_environments_that_have_started_stay_as_they_are():
    with eval_sampler_of(SamplerSetup(1, ENVIRONMENTS[:2]).build(), 2) as sampler:
        samples, _ = sampler.collect_batch(0)
        before = np.array(samples.env.observation)[0, :, 0]
        sampler.load_state(sampler.state(environments=False))
        samples, _ = sampler.collect_batch(0)
        np.testing.assert_array_equal(np.asarray(samples.env.observation)[0, :, 0], before)


def test_close_leaves_the_agent_to_training():
    parts = SamplerSetup(1, ENVIRONMENTS[:1]).build()
    sampler = eval_sampler_of(parts, 1)
    sampler.close()
    sampler.close()
    assert parts.handler.agent.closed == 0


def test_wrong_arguments():
    parts = SamplerSetup(1, ENVIRONMENTS[:2]).build()
    longer = SamplerSetup(2, ENVIRONMENTS[:2]).build()
    try:
        with pytest.raises(ValueError, match=r"n_episodes: expected one per environment \(2\)"):
            eval_sampler_of(parts, 1)
        for wrong in (None, 4.0, "4", True):
            with pytest.raises(ValueError, match=f"n_episodes: expected an int .*, got {wrong!r}"):
                eval_sampler_of(parts, wrong)
        with pytest.raises(ValueError, match=r"expected \[T, B\] = \(1, 2\)"):
            EvalSampler(parts.cages, parts.handler, longer.samples, 2)
        with pytest.raises(ValueError, match=r"expected \[T, B\] = \(1, 1\)"):
            EvalSampler(parts.cages[:1], parts.handler, parts.samples, 2)
        with pytest.raises(ValueError, match="got the same cage twice"):
            EvalSampler([parts.cages[0]] * 2, parts.handler, parts.samples, 2)
        with pytest.raises(ValueError, match="cages: expected at least one"):
            EvalSampler([], parts.handler, parts.samples, 2)
        with pytest.raises(ValueError, match="max_steps: expected at least 1, got 0"):
            eval_sampler_of(parts, 2, max_steps=0)
    finally:
        parts.close()
        longer.close()


def test_transforms_of_training_see_no_rows_of_evaluations():
    calls = []
    only = partial(RecordingStepTransform, "only", calls=calls)
    parts = SamplerSetup(1, (partial(CountingEnv, 3),), step_transforms=(only,)).build()
    with eval_sampler_of(parts, 1) as sampler:
        sampler.collect_batch(0)
    assert calls == [("only", "final", 1)] * 3
