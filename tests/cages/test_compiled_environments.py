"""Compiled environments in cages: rows and batches equal those of the same environments, stepped one by one.

The reference are environments in a wrapper that does nothing, which cages step one after the other.
"""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import buffer_leaves
from parllel.cages import ProcessCage, SynchronizedProcessCage, TrajInfo, VectorizedCage
from parllel.cages.stepping.compiled_environments import CompiledEnvironments
from parllel.envs.compiled import compiled_env
from parllel.errors import WrongStateError
from parllel.samplers import AlternatingSampler, BasicSampler, RecurrentSampler, RolloutSampler
from parllel.seeding import Seeds
from parllel.torch import SmallPolicyHandler, TorchHandler, agent_for
from parllel.types import BatchSpec
from parllel_patterns import allocate_samples

T, B = 7, 5


@njit
def move(state, by, rng):
    state.x += by + state.noise * rng.normal()
    state.n += 1
    if abs(state.x) > state.fails_at:
        raise ZeroDivisionError("fell off")
    return state.x * 0.1, abs(state.x) > state.edge


class OnALine:
    """Random starts and noise; episodes end at the edges."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    state = np.dtype([("x", np.float64), ("n", np.int64)])
    parameters = {"noise": 0.3, "edge": 2.0, "fails_at": 1e9}
    max_episode_steps = 6

    @staticmethod
    def reset(state, rng):
        state.x = rng.uniform(-1, 1)
        state.n = 0

    @staticmethod
    def observe(state, out):
        out[0] = state.x
        out[1] = state.n


@compiled_env
class Walk(OnALine):
    action_space = spaces.Discrete(3, start=2)

    @staticmethod
    def step(state, action, rng):
        return move(state, 0.5 * (action - 3), rng)


class InTwoParts(OnALine):
    @staticmethod
    def step(state, action, rng):
        return move(state, 0.7 * action[0] - 0.2 * action[1], rng)


@compiled_env
class BoxWalk(InTwoParts):
    action_space = spaces.Box(-0.6, 0.6, (2,), np.float32)


@compiled_env
class MultiWalk(InTwoParts):
    action_space = spaces.MultiDiscrete([2, 3])


KINDS = {"discrete": Walk, "box": BoxWalk, "multidiscrete": MultiWalk}


class Wrapped(gym.Wrapper):
    """Changes nothing, and hides from cages that the environment is compiled."""


def wrapped(make):
    return Wrapped(make())


def factories(make, n=B, *, single=False):
    return [partial(wrapped, make) if single else make] * n


def handler_for(cage, kind):
    if kind == "random":
        return NumpyHandler(RandomAgent(cage.spaces.action, seed=4))
    agent = agent_for(cage.spaces, hidden_sizes=(8, 8), seeds=Seeds(1))
    return (SmallPolicyHandler if kind == "small" else TorchHandler)(agent)


def sampler_of(
    make, *, single=False, Sampler=BasicSampler, cage=VectorizedCage, kind="random", **options
):
    cage_options = options.pop("cage_options", {})
    if cage is not VectorizedCage:
        cage_options = {"timeout_s": 150, **cage_options}
    halves = [slice(0, 2), slice(2, B)] if Sampler is AlternatingSampler else [slice(0, B)]
    automatic = Sampler.resets_automatically
    cages = [
        cage(
            factories(make, single=single)[half],
            seeds=range(10, 10 + B)[half],
            reset_automatically=automatic,
            **cage_options,
        )
        for half in halves
    ]
    handler = handler_for(cages[0], kind)
    samples = allocate_samples(cages, BatchSpec(T, B), handler, **options)
    if Sampler is RolloutSampler:
        for one in cages:
            one.set_policy(handler.worker_policy())
    return Sampler(BatchSpec(T, B), cages, handler, samples)


def collect(sampler, n=6):
    found = []
    for _ in range(n):
        samples, trajs = sampler.collect_batch(0)
        leaves = {name: np.array(leaf) for name, leaf in buffer_leaves(samples)}
        found.append((leaves, [traj.as_dict() for traj in trajs]))
    return found


def check_equal(found, expected):
    for (leaves, trajs), (other, others) in zip(found, expected, strict=True):
        assert leaves.keys() == other.keys()
        for name, leaf in leaves.items():
            np.testing.assert_array_equal(leaf, other[name], err_msg=name)
        assert trajs == others


def compare(make, **options):
    with (
        sampler_of(make, **options) as mine,
        sampler_of(make, single=True, **options) as one_by_one,
    ):
        if options.get("cage", VectorizedCage) is VectorizedCage:
            envs = [cage._envs for cage in mine.cages.cages]
            assert all(type(one) is CompiledEnvironments for one in envs)
        found = collect(mine)
        check_equal(found, collect(one_by_one))
    assert any(trajs for _, trajs in found)


@pytest.mark.parametrize("kind", ["random", "small", "torch"])
@pytest.mark.parametrize("space", KINDS)
@pytest.mark.few(2)
def test_batches_of_each_action_space_and_handler(space, kind):
    compare(KINDS[space], kind=kind)


@pytest.mark.parametrize("Sampler", [RecurrentSampler, AlternatingSampler])
def test_batches_of_each_sampler(Sampler):
    compare(Walk, Sampler=Sampler)


@pytest.mark.parametrize("main", [0, 2])
@pytest.mark.parametrize("Sampler", [BasicSampler, RolloutSampler, RecurrentSampler])
@pytest.mark.few(1)
def test_batches_over_workers(Sampler, main):
    options = {"n_workers": 2, "participate": main > 0, "n_main": main or None}
    kind = "small" if Sampler is RolloutSampler else "random"
    noise = {"noise": True} if Sampler is RolloutSampler else {}
    compare(
        Walk,
        Sampler=Sampler,
        cage=SynchronizedProcessCage,
        kind=kind,
        cage_options=options,
        **noise,
    )


def test_a_policy_in_workers_gives_the_batches_of_one_in_this_process():
    with (
        sampler_of(
            Walk,
            Sampler=RolloutSampler,
            cage=SynchronizedProcessCage,
            kind="small",
            noise=True,
            cage_options={"n_workers": 2},
        ) as workers,
        sampler_of(Walk, kind="small", noise=True) as main,
    ):
        check_equal(collect(workers), collect(main))


def test_one_environment_in_a_process():
    """A ProcessCage has one environment."""

    def make(single):
        cages = [
            ProcessCage(
                *factories(Walk, 1, single=single), seed=i, reset_automatically=True, timeout_s=150
            )
            for i in range(2)
        ]
        handler = handler_for(cages[0], "random")
        samples = allocate_samples(cages, BatchSpec(T, 2), handler)
        return BasicSampler(BatchSpec(T, 2), cages, handler, samples)

    with make(False) as mine, make(True) as one_by_one:
        check_equal(collect(mine, 3), collect(one_by_one, 3))


class Greatest(TrajInfo):
    """Keeps the largest reward, so that it must see each step."""

    def __init__(self):
        super().__init__()
        self.greatest = -np.inf

    def step(self, *args):
        super().step(*args)
        self.greatest = max(self.greatest, args[2])


@pytest.mark.parametrize(
    "options",
    [
        {"switching": True},
        {"next_observation": True},
        {"cage_options": {"traj_info": Greatest}},
        {"cage_options": {"traj_info": partial(TrajInfo, discount=0.9)}},
        {"cage_options": {"check": "always"}},
    ],
    ids=repr,
)
def test_batches_with(options):
    compare(Walk, **options)


def test_random_steps_before_the_first_batch():
    spec = BatchSpec(T, B)

    def make(single):
        cage = VectorizedCage(factories(Walk, single=single), seeds=range(B))
        handler = handler_for(cage, "random")
        samples = allocate_samples([cage], spec, handler)
        return BasicSampler(
            spec, [cage], handler, samples, decorrelation_steps=9, decorrelation_seed=5
        )

    with make(False) as mine, make(True) as one_by_one:
        check_equal(collect(mine), collect(one_by_one))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    n=st.integers(1, 40),
    rows=st.integers(1, 9),
    edge=st.floats(0.2, 5),
    automatic=st.booleans(),
    data=st.data(),
)
def test_rows_of_any_cage_equal_those_of_single_environments(seed, n, rows, edge, automatic, data):
    """A loop by hand, with resets by mask in between, actions of all kinds, and attributes that change."""
    cages = [
        VectorizedCage(
            factories(Walk, n, single=single),
            seeds=range(seed, seed + n),
            reset_automatically=automatic,
        )
        for single in (False, True)
    ]
    spec = BatchSpec(rows, n)
    found = []
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, 5, (rows, n))
    which = [rng.random(n) < 0.2 for _ in range(rows)]
    random = data.draw(st.integers(0, rows))
    for cage in cages:
        with cage:
            samples = allocate_samples([cage], spec, handler_for(cage, "random"))
            cage.set_samples_buffer(samples, slice(0, n))
            cage.edge = edge
            cage.start_reset(0)
            cage.finish_row()
            samples.agent.action[:] = actions
            seen = []
            for t in range(rows):
                (cage.start_random_row if t == random else cage.start_row)(t)
                cage.finish_row()
                cage.start_reset(t + 1, which=which[t] | cage.needs_reset)
                seen.append(np.array(samples.env.observation[t + 1]))
                cage.finish_row()
                if t == rows // 2:
                    cage.set_attr("noise", (rng.random(n) * 0 + np.arange(n) / n).tolist())
            leaves = {name: np.array(leaf) for name, leaf in buffer_leaves(samples)}
            final = [
                (*one[:2], one.observation.tolist(), one.truncated)
                for one in cage.collect_final_observations()
            ]
            trajs = [traj.as_dict() for traj in cage.collect_completed_trajs()]
            found.append((leaves, final, trajs, seen, cage.x))
    (mine, *others), (reference, *theirs) = found
    for name, leaf in mine.items():
        np.testing.assert_array_equal(leaf, reference[name], err_msg=name)
    np.testing.assert_array_equal(others.pop(2), theirs.pop(2))
    assert others == theirs


def test_a_saved_run_continues_with_the_same_batches():
    with sampler_of(Walk, kind="small") as whole, sampler_of(Walk, kind="small") as first:
        expected = collect(whole, 6)
        collect(first, 3)
        state, agent = first.state(), first.handler.state()
    with sampler_of(Walk, kind="small") as second:
        second.load_state(state)
        second.handler.load_state(agent)
        check_equal(collect(second, 3), expected[3:])


# ------------------------------------------------------------------ errors


def row_of_failures(single):
    """Step three environments, of which the second fails at once; return the row and the error."""
    with VectorizedCage(factories(Walk, 3, single=single), seeds=range(3)) as cage:
        samples = allocate_samples([cage], BatchSpec(2, 3), handler_for(cage, "random"))
        cage.set_samples_buffer(samples, slice(0, 3))
        samples.agent.action[:] = 2
        cage.set_attr("fails_at", [1e9, 0.0, 1e9])
        cage.start_reset(0)
        cage.finish_row()
        with pytest.raises(ZeroDivisionError, match="fell off") as caught:
            cage.start_row(0)
        return np.array(samples.env.reward[0]), np.array(samples.env.done[0]), caught.value


def test_an_error_names_the_environment_and_keeps_the_steps_that_were_made():
    reward, done, error = row_of_failures(single=False)
    expected, others, reference = row_of_failures(single=True)
    assert error.__notes__ == reference.__notes__ == ["in environment 1 (Walk), during step"]
    np.testing.assert_array_equal(reward[[0, 2]], expected[[0, 2]])
    assert np.isnan(reward[2])
    np.testing.assert_array_equal(done, others)


def rows_after_a_failure(single):
    """End the first episode in the row in which the second environment fails, and go on."""
    with VectorizedCage(
        factories(Walk, 3, single=single), seeds=range(3), reset_automatically=False
    ) as cage:
        samples = allocate_samples([cage], BatchSpec(4, 3), handler_for(cage, "random"))
        cage.set_samples_buffer(samples, slice(0, 3))
        samples.agent.action[:] = 2
        cage.start_reset(0)
        cage.finish_row()
        cage.set_attr("edge", [0.0, 2.0, 2.0])
        cage.set_attr("fails_at", [1e9, 0.0, 1e9])
        with pytest.raises(ZeroDivisionError):
            cage.start_row(0)
        waiting = cage.needs_reset.tolist()
        cage.set_attr("fails_at", [1e9] * 3)
        cage.start_row(1)
        cage.finish_row()
        cage.start_reset(2, all_envs=False)
        cage.finish_row()
        cage.start_row(2)
        cage.finish_row()
        # The third environment was not reached in the row that failed, or was, as the cage steps them.
        return waiting, np.array(samples.env.observation[3])[:2], cage.needs_reset.tolist()[:2]


def test_environments_that_ended_in_a_row_that_failed_wait_for_their_reset():
    mine, reference = rows_after_a_failure(single=False), rows_after_a_failure(single=True)
    assert mine[0] == reference[0] == [True, False, False]
    np.testing.assert_array_equal(mine[1], reference[1])
    assert mine[2] == reference[2]


def test_an_error_in_a_batch_names_the_environment():
    with sampler_of(Walk, kind="small") as sampler:
        sampler.collect_batch(0)
        sampler.cages.cages[0].set_attr("fails_at", [1e9, 1e9, 0.0, 1e9, 1e9])
        with pytest.raises(ZeroDivisionError) as caught:
            sampler.collect_batch(0)
        assert "in environment 2 (Walk), during step" in caught.value.__notes__
        with pytest.raises(WrongStateError, match="an error ended the last batch halfway"):
            sampler.collect_batch(0)


@pytest.mark.parametrize(("space", "wrong"), [("discrete", 9), ("multidiscrete", [1, 7])])
def test_an_action_outside_of_the_space_is_refused(space, wrong):
    with VectorizedCage(factories(KINDS[space], 2), seeds=range(2)) as cage:
        samples = allocate_samples([cage], BatchSpec(3, 2), handler_for(cage, "random"))
        cage.set_samples_buffer(samples, slice(0, 2))
        cage.start_reset(0)
        cage.finish_row()
        samples.agent.action[:] = cage.spaces.action.start
        cage.start_row(0)
        cage.finish_row()
        samples.agent.action[1, 1] = wrong
        with pytest.raises(
            ValueError, match=r"environment 1 \(\w+\): action: expected .* in row 1"
        ):
            cage.start_row(1)


def test_an_observation_outside_of_the_space_is_found_in_the_first_episode():
    with VectorizedCage(factories(Walk, 3), seeds=range(3)) as cage:
        samples = allocate_samples([cage], BatchSpec(3, 3), handler_for(cage, "random"))
        cage.set_samples_buffer(samples, slice(0, 3))
        samples.agent.action[:] = 2
        cage.set_attr("edge", [1e9, 1e9, 1e9])
        cage.start_reset(0)
        cage.finish_row()
        cage.set_attr("x", [0.0, 0.0, 1e3])
        with pytest.raises(
            ValueError, match=r"environment 2 \(Walk\): observation of step: expected"
        ):
            cage.start_row(0)


def test_rows_out_of_order_are_refused_as_by_any_cage():
    with VectorizedCage(factories(Walk, 2), seeds=range(2)) as cage:
        with pytest.raises(WrongStateError, match="no samples buffer was set"):
            cage.start_row(0)
        samples = allocate_samples([cage], BatchSpec(3, 2), handler_for(cage, "random"))
        cage.set_samples_buffer(samples, slice(0, 2))
        with pytest.raises(WrongStateError, match="stepped before a reset"):
            cage.start_row(0)
        cage.start_reset(0)
        cage.finish_row()
        with pytest.raises(IndexError, match="row"):
            cage.start_row(3)


def test_wrappers_hide_the_environment_and_other_classes_are_stepped_singly():
    class Other(OnALine):
        action_space = Walk.functions.action_space
        step = staticmethod(Walk.functions.plain.step)

    other = compiled_env(Other)
    for makes, alike in (
        ([Walk, Walk], True),
        ([Walk, partial(wrapped, Walk)], False),
        ([Walk, other], False),
    ):
        with VectorizedCage(makes, seeds=[0, 1]) as cage:
            assert (type(cage._envs) is CompiledEnvironments) == alike


def test_observations_of_another_dtype_than_the_space():
    with (
        sampler_of(Walk, kind="torch", dtype={"env.observation": np.float64}) as mine,
        sampler_of(Walk, single=True, kind="torch", dtype={"env.observation": np.float64}) as other,
    ):
        check_equal(collect(mine), collect(other))
