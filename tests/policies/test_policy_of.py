"""What a specification means."""

from __future__ import annotations

import functools
import itertools
import operator
import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from policy_runs import pendulum

from parllel.buffers import buffer_map
from parllel.envs.space_elements import draw_actions
from parllel.policies import Policy, policy_of, register_scheme
from parllel.policies.basic_policies import ConstantPolicy, FunctionPolicy, RandomPolicy
from parllel.policies.run_policy import RunPolicy
from parllel.policies.specification import code_of

BOX = spaces.Box(np.float32([-1, 2]), np.float32([1, 5]))
SPACES = {
    "discrete": spaces.Discrete(5, start=3),
    "box": BOX,
    "bytes": spaces.Box(3, 250, (2, 2), np.uint8),
    "several": spaces.MultiDiscrete([3, 4]),
    "bits": spaces.MultiBinary(6),
    "dict": spaces.Dict({"b": BOX, "a": spaces.Tuple((spaces.Discrete(2), BOX))}),
}
SEEN = np.zeros((3, 4), np.float32)


def rows_of(actions, n):
    return [buffer_map(operator.itemgetter(i), actions) for i in range(n)]


def assert_equal(one, other):
    buffer_map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
@pytest.mark.parametrize("spec", ["random", "noop"])
def test_actions_of_every_kind_of_space(spec, space):
    policy = policy_of(spec, action_space=space)
    assert policy.action_space == space
    for action in rows_of(policy.act(SEEN, [0, 1, 7]), 3):
        assert space.contains(action)
    assert space.contains(policy.act_one(np.zeros(4)))


def test_noop_is_zero_or_the_nearest():
    assert_equal(policy_of("noop", action_space=BOX).act(SEEN, [0, 1, 2]), [[0, 2]] * 3)
    assert_equal(policy_of("noop", action_space=SPACES["discrete"]).act_one(SEEN[0]), 3)


@given(st.permutations(range(6)), st.sets(st.integers(1, 5)))
def test_draws_do_not_depend_on_the_grouping(order, cuts):
    expected = RandomPolicy(BOX)
    expected.reset(range(6), range(20, 26))
    policy = RandomPolicy(BOX)
    ends = [0, *sorted(cuts), 6]
    for t in range(3):
        wanted = expected.act(np.zeros((6, 1)), range(6))
        for a, b in itertools.pairwise(ends):
            some = order[a:b]
            if t == 0:
                policy.reset(some, [20 + i for i in some])
            np.testing.assert_array_equal(policy.act(np.zeros((b - a, 1)), some), wanted[some])


def test_draws_go_on_without_seeds_and_differ_between_environments():
    policy = RandomPolicy(BOX, seed=1)
    first = policy.act(SEEN, [0, 1, 2])
    assert len(np.unique(first, axis=0)) == 3
    policy.reset([0])
    policy.reset()
    second = policy.act(SEEN, [0, 1, 2])
    assert (first != second).any(axis=1).all()
    assert_equal(RandomPolicy(BOX, seed=1).act(SEEN, [0, 1, 2]), first)
    assert (RandomPolicy(BOX, seed=2).act(SEEN, [0, 1, 2]) != first).any()


def test_generators_are_part_of_the_state():
    policy = RandomPolicy(BOX)
    policy.reset([4], [9])
    policy.act(SEEN, [0, 4, 2])
    state = policy.state()
    expected = policy.act(SEEN, [0, 4, 1])
    other = RandomPolicy(BOX)
    other.load_state(state)
    assert_equal(other.act(SEEN, [0, 4, 1]), expected)


def test_draws_are_those_of_the_space():
    drawn = RandomPolicy(BOX, seed=0).act(np.zeros((1000, 1)), range(1000))
    expected = draw_actions(BOX, np.random.default_rng(0), (1000,))
    np.testing.assert_allclose(drawn.mean(0), expected.mean(0), atol=0.2)
    assert drawn.dtype == np.float32


@pytest.mark.parametrize(
    ("action", "space"),
    [
        (4, SPACES["discrete"]),
        (np.int64(4), SPACES["discrete"]),
        ([0.5, 2.5], BOX),
        ((0.1, 2), BOX),
        ({"a": (1, [0, 3.0]), "b": [1, 2]}, SPACES["dict"]),
    ],
)
def test_constant_actions(action, space):
    policy = policy_of(action, action_space=space)
    assert isinstance(policy, ConstantPolicy)
    for one in rows_of(policy.act(SEEN, [0, 1, 2]), 3):
        assert space.contains(one)
        buffer_map(np.testing.assert_allclose, one, action)


@pytest.mark.parametrize(
    ("action", "space"),
    [
        (8, SPACES["discrete"]),
        (0.5, SPACES["discrete"]),
        ([0.5, 1.5], BOX),
        ([0.5], BOX),
        ([0.5, np.nan], BOX),
        ({"b": [1, 2]}, SPACES["dict"]),
        (None, BOX),
    ],
)
def test_actions_outside_of_the_space(action, space):
    with pytest.raises(ValueError, match=r"expected (one|an action) of .*got "):
        policy_of(action, action_space=space)


def test_an_action_space_is_needed():
    for spec in ("random", "noop", 3):
        with pytest.raises(TypeError, match="expected an action_space to choose from, got None"):
            policy_of(spec)


class Following(Policy):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def act(self, observation, env_indices):
        return observation


def test_policies_and_classes():
    policy = Following(BOX, BOX)
    assert policy_of(policy) is policy
    made = policy_of(Following, BOX, SPACES["bits"])
    assert (made.observation_space, made.action_space) == (BOX, SPACES["bits"])


def test_a_function_of_one_observation():
    seen = []

    def function(observation):
        seen.append(observation)
        return {"b": observation["x"] * 2, "a": (observation["k"] > 3, [0, 3])}

    space = spaces.Dict({"x": BOX, "k": spaces.Discrete(9)})
    policy = policy_of(function, space, SPACES["dict"])
    assert isinstance(policy, FunctionPolicy)
    observation = {"x": np.float32([[0.1, 2], [0.9, 3]]), "k": np.array([3, 4])}
    actions = policy.act(observation, [0, 1])
    np.testing.assert_array_equal(actions["b"], np.float32([[0.2, 4], [1, 5]]))  # clipped
    np.testing.assert_array_equal(actions["a"][0], [0, 1])
    seen[0]["x"][...] = 0  # its own
    assert observation["x"][0, 1] == 2
    action = policy.act_one({"x": np.float32([0, 2]), "k": 5})
    assert SPACES["dict"].contains(action)


def test_a_function_without_spaces():
    policy = policy_of(functools.partial(np.add, 1))
    np.testing.assert_array_equal(policy.act(np.array([[1, 2], [3, 4]]), [5, 6]), [[2, 3], [4, 5]])


def test_what_a_function_returns_is_checked():
    def wrong(observation):
        return 9

    policy = policy_of(wrong, action_space=SPACES["discrete"])
    with pytest.raises(ValueError, match=r"policy .*wrong: expected an action of Discrete.*got 9"):
        policy.act(SEEN, [0, 1, 2])
    policy = policy_of(lambda observation: None, action_space=BOX)
    with pytest.raises(ValueError, match=r"<lambda>: expected an action of Box.*got None"):
        policy.act(SEEN, [0, 1, 2])


FILE = """
from collections import Counter
from parllel.policies import Policy
from beside_{name} import action

def first(observation):
    return 0

class Helper: pass

class Second(Policy):
    def __init__(self, observation_space, action_space):
        self.action_space = action_space
    def act(self, observation, env_indices):
        return [action] * len(env_indices)

number = 3
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text, name="agent.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_files(write, request):
    name = re.sub(r"\W", "_", request.node.name)
    write("action = 4", f"beside_{name}.py")
    path = write(FILE.format(name=name))
    space = SPACES["discrete"]
    last = policy_of(path, action_space=space)
    assert type(last).__name__ == "Second"
    assert last.act(SEEN, [0, 1, 2]) == [4, 4, 4]
    first = policy_of(f"{path}:first", action_space=spaces.Discrete(2))
    assert first.act_one(SEEN[0]) == 0
    for wrong, said in (
        ("third", r"agent\.py: there is no 'third'; it defines \['first', 'Second'\]"),
        ("number", "number: expected a function or a Policy, got 3"),
        ("Helper", "Helper: expected a function or a Policy, got <class"),
    ):
        with pytest.raises(ValueError, match=said):
            policy_of(f"{path}:{wrong}", action_space=space)


def test_files_that_cannot_be_used(write, tmp_path):
    with pytest.raises(ValueError, match=r"broken\.py: cannot be imported: SyntaxError"):
        policy_of(write("def act(:", "broken.py"))
    with pytest.raises(ValueError, match=r"raising\.py: cannot be imported: .*KeyError"):
        policy_of(write("{}['a']", "raising.py"))
    with pytest.raises(ValueError, match=r"empty\.py: expected a function or a Policy, got none"):
        policy_of(write("import math", "empty.py"))
    with pytest.raises(
        ValueError, match=r"the last name that it defines is sin, a built-in function"
    ):
        policy_of(write("from math import sin", "imported.py"))
    with pytest.raises(ValueError, match=r"is Helper, a class; .*, as in helped\.py:agent"):
        policy_of(write("def act(o): return 0\nclass Helper: pass", "helped.py"))
    with pytest.raises(FileNotFoundError, match=r"none\.py: there is no such file"):
        policy_of(str(tmp_path / "none.py"))


def test_folders_of_runs(trained, tmp_path):
    with policy_of(trained("normalized")) as policy:
        assert isinstance(policy, RunPolicy)
    env = pendulum()
    assert policy.observation_space == env.observation_space
    env.close()
    with pytest.raises(ValueError, match="not the folder of a run"):
        policy_of(tmp_path)


def scheme_policy(spec, observation_space, action_space):
    return spec if spec.endswith("nothing") else Following(spec, action_space)


@pytest.fixture
def schemes(monkeypatch):
    monkeypatch.setattr("parllel.policies.specification._SCHEMES", {})


def test_schemes(schemes):
    register_scheme("far", f"{__name__}:scheme_policy")
    register_scheme("far", f"{__name__}:scheme_policy")
    for spec in ("far://host/agent", "far:agent"):
        policy = policy_of(spec, action_space=BOX)
        assert (policy.observation_space, policy.action_space) == (spec, BOX)
    with pytest.raises(
        TypeError, match="scheme_policy: expected it to return a Policy, got 'far:n"
    ):
        policy_of("far:nothing")
    with pytest.raises(
        ValueError, match=f"scheme 'far': already registered for {__name__}:scheme_po"
    ):
        register_scheme("far", "other:function")
    for scheme in ("", "f", "Far", "a b", "1a"):
        with pytest.raises(ValueError, match="scheme: expected at least two of"):
            register_scheme(scheme, "a:b")
    with pytest.raises(ValueError, match="target: expected 'module:function', got 'module'"):
        register_scheme("near", "module")


def test_whose_code_is_executed(schemes, tmp_path, monkeypatch):
    """Those who ask first whether to trust a file, or a run, ask for what would be executed."""
    monkeypatch.chdir(tmp_path)
    register_scheme("far", "a:b")
    for name in ("random", "noop", "run"):
        Path(name).mkdir()
    for spec in ("random", "noop", "far://host/agent.py", "far:agent.py:name", "", "nothing"):
        assert code_of(spec) is None
    assert code_of("a/agent.py") == code_of("a/agent.py:name") == Path("a/agent.py")
    assert code_of("run") == Path("run")
    assert code_of(Path("random")) is None
    assert code_of("./random") == Path("random")


def test_a_scheme_whose_library_is_missing(schemes):
    register_scheme("gone", "no_such_module:function", extra="remote")
    message = r"policy gone:\.\.\.: needs no_such_module: pip install '\.\[remote\]' in a checkout of parllel"
    with pytest.raises(ImportError, match=message):
        policy_of("gone:a")


@pytest.mark.parametrize("spec", ["nonsense", "far://host", "agents/none", ""])
def test_text_that_means_nothing(schemes, spec):
    register_scheme("near", "a:b")
    understood = "expected random, noop, the folder of a run, file.py or file.py:name, near:...;"
    with pytest.raises(ValueError, match=re.escape(understood)):
        policy_of(spec, action_space=BOX)


def test_a_path_is_no_keyword(tmp_path, monkeypatch):
    """A folder that is called as a keyword is reached by ./random."""
    monkeypatch.chdir(tmp_path)
    Path("random").mkdir()
    assert isinstance(policy_of("random", action_space=BOX), RandomPolicy)
    with pytest.raises(ValueError, match="not the folder of a run"):
        policy_of("./random", action_space=BOX)


def test_no_observations():
    for spec in ("random", "noop", lambda seen: [0, 2]):
        found = policy_of(spec, gym.spaces.Discrete(2), BOX).act(np.zeros((0, 1)), [])
        assert (found.shape, found.dtype) == ((0, 2), np.float32)
