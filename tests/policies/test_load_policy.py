"""A policy that was taken out of its run plays what the run's evaluation plays."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import weakref
from contextlib import ExitStack

import numpy as np
import policy_runs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import MAKE, B, Config

from parllel.buffers import buffer_map
from parllel.buffers.tree import buffer_arrays
from parllel.errors import ClosedError
from parllel.policies import load_policy
from parllel.policies.run_policy import RunPolicy
from parllel.runners.runs import rebuild
from parllel.testing.leak_guard import LeakGuard

KINDS = ("normalized", "recurrent", "several_agents")
OTHERS = ("frames", "small_policy", "extra_input", "sampled_elsewhere", "asynchronous")


def stacked(observations):
    return buffer_map(lambda *leaves: np.stack(leaves), *observations)


def part(actions, i):
    return buffer_map(lambda leaf: leaf[i], actions)


def evaluation(path, n_episodes):
    """Return what the run's evaluation plays, by column, and the episodes that it reports."""
    with ExitStack() as stack:
        runner = rebuild(path, stack)
        sampler = runner.eval_sampler
        (cage,) = sampler.cages.cages
        stepper = cage._envs.stepper
        stepper.seeds[:] = range(100, 100 + B)
        sampler.quotas[:] = n_episodes // B
        trajs = sampler.collect_batch(0)[1]
        # The first is from before this evaluation: the states of the checkpoint were loaded.
        played = [[e for e in env.episodes if e][: n_episodes // B] for env in stepper.envs]
    return played, [(traj.length, traj.return_) for traj in trajs]


def played_by(policy, make_env, n_episodes, group):
    """Return what a policy plays in the same environments, asked for `group` of them at a time."""
    envs = [make_env() for _ in range(B)]
    observations = [env.reset(seed=100 + i)[0] for i, env in enumerate(envs)]
    policy.reset()
    left = dict.fromkeys(range(B), n_episodes // B)
    while left:
        numbers = sorted(left)
        for first in range(0, len(numbers), group):
            some = numbers[first : first + group]
            actions = policy.act(stacked([observations[i] for i in some]), some)
            for i, action in zip(some, range(len(some)), strict=True):
                result = envs[i].step(part(actions, action))
                observations[i] = result[0]
                if result[2] or result[3]:
                    left[i] -= 1
                    observations[i] = envs[i].reset()[0]
                    policy.reset([i])
                    if not left[i]:
                        del left[i]
    played = [[e for e in env.episodes if e] for env in envs]
    for env in envs:
        env.close()
    return played


def assert_same_play(found, expected):
    assert [len(episodes) for episodes in found] == [len(episodes) for episodes in expected]
    for mine, theirs in zip(found, expected, strict=True):
        for episode, other in zip(mine, theirs, strict=True):
            assert [reward for _, reward in episode] == [reward for _, reward in other]
            buffer_map(
                np.testing.assert_array_equal,
                [action for action, _ in episode],
                [action for action, _ in other],
            )


@pytest.mark.parametrize("kind", [*KINDS, "fragments"])
@pytest.mark.few(1)
def test_a_hundred_episodes_are_those_of_the_evaluation(trained, kind):
    path = trained(kind)
    expected, episodes = evaluation(path, 100)
    with load_policy(path) as policy:
        found = played_by(policy, MAKE[kind], 100, 3)
    assert_same_play(found, expected)
    lengths = [len(episode) for column in found for episode in column]
    assert lengths == [length for length, _ in episodes]
    assert len(lengths) == 100
    if kind != "several_agents":  # a policy that always does the same would prove nothing
        actions = {
            np.ravel(action)[0] for column in found for episode in column for action, _ in episode
        }
        assert len(actions) > 1


PLAY = """
import sys
import numpy as np
from parllel.policies import load_policy

for path in sys.argv[1:]:
    with load_policy(path) as policy:
        policy.act_one(np.zeros(policy.observation_space.shape, policy.observation_space.dtype))
    print(*sorted({"torch", "torch._dynamo", "sympy", "parllel.algos.compiled_updates"} & set(sys.modules)))
"""


def test_what_only_learning_needs_is_not_imported(trained):
    paths = [str(trained(kind)) for kind in ("normalized", "recurrent", "fragments", "frames")]
    done = subprocess.run([sys.executable, "-c", PLAY, *paths], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("torch\n" * 4, "")


@pytest.mark.parametrize(
    "kind", ["frames", "small_policy", "extra_input", "sampled_elsewhere", "asynchronous"]
)
@pytest.mark.few(2)
def test_other_kinds_of_runs(trained, kind):
    path = trained(kind)
    expected, _ = evaluation(path, 8)
    with LeakGuard():
        policy = load_policy(path)
    with policy:
        assert_same_play(played_by(policy, MAKE[kind], 8, 3), expected)


@pytest.mark.parametrize("kind", [*KINDS, "frames", "fragments"])
def test_nothing_of_the_run_is_left(trained, kind):
    path = trained(kind)
    arrays = []

    def build(*args):
        runner = policy_runs.build(*args)
        for sampler in runner.samplers:
            samples = getattr(sampler, "samples", None)
            if samples is not None:
                arrays.extend(np.asarray(array).base for array in buffer_arrays(samples))
        arrays[:] = [weakref.ref(owner(array)) for array in arrays if array is not None]
        return runner

    load_policy(path, build=build, config_class=Config).close()  # what is imported stays
    arrays.clear()
    with LeakGuard():
        policy = load_policy(path, build=build, config_class=Config)
        assert arrays
        # Without a collection, which may come much later.
        assert [array() for array in arrays] == [None] * len(arrays)
    assert isinstance(policy, RunPolicy)
    policy.close()


def test_the_agent_is_closed_with_the_policy(trained):
    closed = []

    def build(*args):
        runner = policy_runs.build(*args)
        runner.algorithm.agent.close = lambda: closed.append("agent")
        return runner

    def failing(config, stack, *args):
        runner = build(config, stack, *args)
        stack.callback(lambda: 1 / 0)
        return runner

    policy = load_policy(trained("normalized"), build=build, config_class=Config)
    assert closed == []
    policy.close()
    assert closed == ["agent"]
    with pytest.raises(ZeroDivisionError):
        load_policy(trained("normalized"), build=failing, config_class=Config)
    assert closed == ["agent"] * 2


def owner(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def test_workers_of_the_evaluation_end(trained):
    path = trained("normalized")
    with LeakGuard():
        policy = load_policy(path, changes={"processes": True})
    with policy:
        assert policy.env_factories == [MAKE["normalized"]] * B
        policy.make_env().close()


@pytest.fixture(scope="session")
def policies(trained):
    """Policies that are loaded once, in blocks and as observations come."""
    loaded = {
        (kind, rows): load_policy(trained(kind), rows=rows) for kind in KINDS for rows in (16, None)
    }
    yield loaded
    for policy in loaded.values():
        policy.close()


N = 19


def steps_of(policy, groups_of_steps, space):
    """Return the actions of steps in which N environments are asked for in groups."""
    policy.reset()
    space.seed(5)
    found = []
    for groups in groups_of_steps:
        observations = [space.sample() for _ in range(N)]
        actions = [None] * N
        for group in groups:
            result = policy.act(stacked([observations[i] for i in group]), group)
            for place, i in enumerate(group):
                actions[i] = part(result, place)
        found.append(stacked(actions))
    return found


def partitions(draw):
    """Draw how N environments are divided into groups, and their order."""
    order = draw(st.permutations(range(N)))
    cuts = sorted(draw(st.sets(st.integers(1, N - 1))))
    return [order[a:b] for a, b in zip([0, *cuts], [*cuts, N], strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_actions_do_not_depend_on_the_grouping(policies, kind):
    policy = policies[kind, 16]
    make = MAKE[kind]
    env = make()
    space = env.observation_space
    env.close()
    expected = steps_of(policy, [[list(range(N))]] * 4, space)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.composite(partitions)(), min_size=4, max_size=4))
    def check(groups):
        buffer_map(np.testing.assert_array_equal, steps_of(policy, groups, space), expected)

    check()


def test_observations_as_they_come(policies):
    """Without blocks an agent gets as many rows as there are, no more."""
    policy = policies["normalized", None]
    rows = []
    handler = policy.handler
    act = handler.act
    handler.act = lambda seen, slots: rows.append(len(slots)) or act(seen, slots)
    try:
        for n in (3, 1):
            policy.act(np.zeros((n, 3)), range(n))
    finally:
        del handler.act
    assert rows == [3, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_environments_may_be_any(policies, kind):
    policy = policies[kind, 16]
    env = MAKE[kind]()
    space = env.observation_space
    env.close()
    space.seed(1)
    observations = [stacked([space.sample() for _ in range(3)]) for _ in range(5)]
    found = []
    for numbers in ([0, 1, 2], [10**9, 3, 77]):
        policy.reset(numbers)
        found.append([policy.act(one, numbers) for one in observations])
    buffer_map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_brings_memories_back(policies, kind):
    policy = policies[kind, 16]
    assert policy.recurrent == (kind == "recurrent")
    env = MAKE[kind]()
    space = env.observation_space
    env.close()
    space.seed(2)
    observations = [stacked([space.sample() for _ in range(2)]) for _ in range(6)]
    numbers = [1, 50]
    policy.reset()
    for one in observations[:3]:
        policy.act(one, numbers)
    state = policy.state()
    expected = [policy.act(one, numbers) for one in observations[3:]]
    policy.reset()
    policy.act(observations[0], [7, 3])
    policy.load_state(state)
    found = [policy.act(one, numbers) for one in observations[3:]]
    buffer_map(np.testing.assert_array_equal, found, expected)


def test_one_observation(policies):
    policy = policies["several_agents", 16]
    env = policy.make_env()
    observation, _ = env.reset(seed=3)
    action = policy.act_one(observation)
    assert env.action_space.contains(action)
    assert env.observation_space == policy.observation_space
    assert env.action_space == policy.action_space
    env.close()


def test_no_environments(policies):
    action = policies["normalized", 16].act(np.zeros((0, 3)), [])
    assert (action.shape, action.dtype) == ((0, 1), np.float32)


def test_global_generators_stay_as_they_are(trained):
    random.seed(1), np.random.seed(1)
    expected = random.random(), np.random.random()
    random.seed(1), np.random.seed(1)
    load_policy(trained("normalized")).close()
    assert (random.random(), np.random.random()) == expected


def test_wrong_arguments(trained, policies):
    policy = policies["normalized", 16]
    with pytest.raises(ValueError, match=r"observation: expected shape \[N, 3\], got \[4\]"):
        policy.act(np.zeros(4), [0])
    with pytest.raises(ValueError, match=r"env_indices: expected 2, one for each .*, got 1"):
        policy.act(np.zeros((2, 3)), [0])
    with pytest.raises(ValueError, match=r"env_indices: expected different environments, got"):
        policy.act(np.zeros((2, 3)), [1, 1])
    for wrong in ([-1], [True], [0.5], 3):
        with pytest.raises(ValueError, match="env_indices: expected ints of at least 0, got"):
            policy.act(np.zeros((1, 3)), wrong)
    several = policies["several_agents", 16]
    with pytest.raises(ValueError, match=r"observation: no field 'agent_0'"):
        several.act({"agent_1": np.zeros((1, 18))}, [0])
    for rows in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="rows: expected an int of at least 1, or None"):
            load_policy(trained("normalized"), rows=rows)


def test_a_closed_policy(trained):
    policy = load_policy(trained("normalized"))
    policy.close()
    policy.close()
    with pytest.raises(ClosedError, match=r"RunPolicy: used after close\(\)"):
        policy.act(np.zeros((1, 3)), [0])


def test_a_run_without_evaluation(trained):
    path = trained("normalized", evaluate=False)
    with pytest.raises(
        ValueError, match=r"normalized.*: this run has no EvalSampler, which defines"
    ):
        load_policy(path)


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained("normalized"), tmp_path / "run")


def test_folders_that_are_no_runs(tmp_path, run):
    with pytest.raises(FileNotFoundError, match=r"none: there is no such folder"):
        load_policy(tmp_path / "none")
    with pytest.raises(ValueError, match=r"not the folder of a run, because it has no run\.json"):
        load_policy(tmp_path)
    (run / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json: damaged"):
        load_policy(run)


def test_a_moved_run_is_a_run(run):
    load_policy(run).close()


def test_a_run_of_another_device_acts_on_the_cpu(run, trained):
    config = json.loads((run / "config.json").read_text())
    assert config["device"] == "cpu"
    (run / "config.json").write_text(json.dumps({**config, "device": "cuda:63"}))
    said = r"PyTorch cannot use this run's device 'cuda:63' here, so its policy acts on the CPU"
    with pytest.warns(UserWarning, match=said), LeakGuard():
        policy = load_policy(run)
    expected, _ = evaluation(trained("normalized"), 8)
    with policy:
        assert_same_play(played_by(policy, MAKE["normalized"], 8, 3), expected)
    # A device that was asked for is used, or refused.
    with pytest.raises(ValueError, match="got 'cuda:62'"):
        load_policy(run, changes={"device": "cuda:62"})


def test_a_run_whose_script_is_gone(run):
    record = json.loads((run / "run.json").read_text())
    record["build"].update(name="__main__:build", file="/gone/train.py")
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(
        FileNotFoundError,
        match=r"/gone/train.py: the script or module that built this run no longer exists",
    ):
        load_policy(run)


def test_checkpoints_that_cannot_be_used(run, trained):
    paths = sorted((run / "checkpoints").iterdir())
    for path in paths:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"none of \d checkpoints can be read"):
        load_policy(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        load_policy(run)
    # As if the build function had changed since.
    shutil.copytree(trained("recurrent") / "checkpoints", run / "checkpoints")
    with pytest.raises(ValueError, match=r"step-.*zip does not fit this run: "):
        load_policy(run)


def test_the_best_checkpoint(run):
    with load_policy(run) as newest, load_policy(run, best=True) as best:
        (path,) = (run / "best").iterdir()
        assert best.elapsed_steps == int(path.stem.removeprefix("step-"))
        assert newest.elapsed_steps == 3 * 8 * B
