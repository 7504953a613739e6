"""States of other environments, and damaged ones, are refused by name."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
from env_replays import assert_same, make, through_file
from gymnasium import wrappers
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.envs.states import env_state, load_env_state
from parllel.envs.states.plain_values import freeze, plain_copy, thaw


def state_of(env, steps=5):
    env.reset(seed=0)
    for _ in range(steps):
        env.step(env.action_space.sample())
    return env_state(env)


def stacked(n=3, **options):
    return wrappers.FrameStackObservation(make("CartPole-v1", **options), n)


def clipped(env):
    return wrappers.ClipReward(env, 0, 1)


@pytest.mark.parametrize(
    ("saved", "loaded", "text"),
    [
        ("CartPole-v1", "MountainCar-v0", "MountainCarEnv, got the state of .*CartPoleEnv"),
        ("CartPole-v1", stacked, "FrameStackObservation<CartPole-v1>: expected the state"),
        (stacked, "CartPole-v1", "CartPole-v1>: expected the state of the layers"),
        (stacked, lambda: stacked(4), "with the spaces"),
        ("FrozenLake-v1", "FrozenLake8x8-v1", "with the spaces"),
        (
            "HalfCheetah-v5",
            "HalfCheetah-v4",
            "half_cheetah_v4.HalfCheetahEnv, got the state of .*half_cheetah_v5",
        ),
        (
            lambda: clipped(stacked()),
            lambda: wrappers.FrameStackObservation(clipped(make("CartPole-v1")), 3),
            "FrameStackObservation around .*ClipReward",
        ),
    ],
)
def test_other_layers_and_shapes_are_refused(saved, loaded, text):
    one, other = (make(env) if isinstance(env, str) else env() for env in (saved, loaded))
    state = state_of(one)
    with pytest.raises(ValueError, match=text):
        load_env_state(other, state)
    one.close()
    other.close()


@pytest.mark.parametrize("nonsense", [None, "state", 3, [1], np.zeros(3)])
def test_what_is_no_dict_is_a_type_error(nonsense):
    with pytest.raises(TypeError, match=r"TimeLimit<CartPole-v1>: expected its state as a dict"):
        load_env_state(make("CartPole-v1"), nonsense)


@pytest.mark.parametrize(
    "nonsense",
    [{}, {"layers": 3}, {"layers": [None] * 4}, {"layers": [{"class": "TimeLimit"}] * 4}],
)
def test_dicts_that_are_no_states_are_refused(nonsense):
    with pytest.raises(ValueError, match="this is not the state of an environment"):
        load_env_state(make("CartPole-v1"), nonsense)


@pytest.mark.parametrize(
    ("layer", "attribute", "value", "text"),
    [
        (0, "obs_queue", {"list": []}, "FrameStack.*: obs_queue: expected 3 to 3 parts, got 0"),
        (0, "obs_queue", {"list": [np.zeros(3)] * 3}, r"obs_queue: expected shape \(4,\)"),
        (1, "_elapsed_steps", "many", "TimeLimit<CartPole-v1>: _elapsed_steps: expected .*'many'"),
        (2, "_has_reset", 0.5, "OrderEnforcing<CartPole-v1>: _has_reset: expected"),
        (4, "state", np.zeros(3), "CartPoleEnv<CartPole-v1>: state: expected NumericAttribute"),
        (4, "state", {"object": 3}, "CartPoleEnv<CartPole-v1>: expected a saved value"),
        (4, "gravity", 3.0, "CartPoleEnv<CartPole-v1>: expected attributes .*got 'gravity'"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(layer, attribute, value, text):
    state = state_of(stacked())
    state["layers"][layer]["state"][attribute] = value
    with pytest.raises(ValueError, match=text):
        load_env_state(stacked(), state)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda saved: saved.pop("physics"), "HalfCheetahEnv<HalfCheetah-v5>: 'physics'"),
        (lambda saved: saved.update(physics=np.zeros(3)), r"physics: expected float64 \(\d+,\)"),
        (lambda saved: saved["data"].pop("xpos"), "missing or unknown: .*xpos"),
        (lambda saved: saved["data"].update(xpos="here"), "xpos: expected float64 .* got 'here'"),
        (lambda saved: saved["data"].update(contact=np.zeros(3)), "missing or unknown: .*contact"),
    ],
)
def test_physics_of_other_models_is_refused(change, text):
    env = make("HalfCheetah-v5")
    state = state_of(env)
    change(state["layers"][-1]["state"])
    with pytest.raises(ValueError, match=text):
        load_env_state(env, state)
    env.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda saved: saved.update(game="pong"),
            "expected a state of the game 'breakout', got one of 'pong'",
        ),
        (lambda saved: saved.update(action=77), "action: expected one of .*, got 77"),
        (lambda saved: saved.update(emulator=np.zeros(9)), "emulator: expected .bytes. uint8"),
        (
            lambda saved: saved.update(emulator=saved["emulator"][:100]),
            "emulator's state cannot be read|took another state",
        ),
    ],
)
def test_games_of_others_are_refused(change, text):
    ale_py = pytest.importorskip("ale_py")
    gym.register_envs(ale_py)
    env = make("ALE/Breakout-v5")
    state = state_of(env)
    change(state["layers"][-1]["state"])
    with pytest.raises(ValueError, match=text):
        load_env_state(env, state)
    env.close()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
ARRAYS = st.sampled_from(
    [
        np.arange(3, dtype=np.int8),
        np.zeros((2, 0), np.float32),
        np.array("text"),
        np.float32(0.1),
        np.int64(7),
        np.bool_(True),
        np.str_("x"),
    ]
)


@settings(max_examples=60)
@given(value=st.tuples(VALUES, st.lists(ARRAYS, max_size=3)))
def test_values_come_back_as_they_were(value, tmp_path_factory):
    state = {"value": freeze(value)}
    back = through_file(state, tmp_path_factory.mktemp("state"))
    assert_same(thaw(back["value"]), value)


@pytest.mark.parametrize("value", [{1}, object(), np.array([object()]), len, [{"a": {1}}]])
def test_values_that_no_file_can_hold_are_refused(value):
    with pytest.raises(TypeError, match=r"here.*: expected|here.*: arrays of objects"):
        freeze(value, "here")
    with pytest.raises(TypeError, match=r"here.*: expected|here.*: arrays of objects"):
        plain_copy(value, "here")


@pytest.mark.parametrize("key", [1, None, ("a",)])
def test_states_have_names_as_keys(key):
    with pytest.raises(TypeError, match=r"here\.inner: expected strings as keys"):
        plain_copy({"inner": {key: 0}}, "here")


def leaves_of(state, path=()):
    if isinstance(state, dict):
        for key, part in state.items():
            yield from leaves_of(part, (*path, key))
    elif isinstance(state, list):
        for i, part in enumerate(state):
            yield from leaves_of(part, (*path, i))
    yield path


JUNK = st.sampled_from(
    [None, 0, -1, 2.5, "x", [], {}, np.zeros(2), np.zeros((4, 4), "U3"), {"list": 0}]
)
NORMALIZED = state_of(wrappers.NormalizeObservation(stacked()))


@settings(max_examples=150)
@given(data=st.data(), junk=JUNK)
def test_damage_is_an_error_of_the_two_kinds_if_it_is_one(data, junk):
    state = copy.deepcopy(NORMALIZED)
    *path, last = data.draw(st.sampled_from([path for path in leaves_of(state) if path]))
    holder = state
    for key in path:
        holder = holder[key]
    holder[last] = junk
    env = wrappers.NormalizeObservation(stacked())
    problem = None
    try:
        load_env_state(env, state)
    except (TypeError, ValueError) as error:
        problem = str(error)
    assert problem is None or "CartPole-v1" in problem  # one of its layers is named
