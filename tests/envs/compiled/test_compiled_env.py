"""Compiled environments alone: what a class may define, what is refused, and what it makes."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from parllel.envs.compiled import CompiledEnv, compiled_env
from parllel.testing.compiled_contract import CompiledEnvContract

BOX = spaces.Box(-5, 5, (2,), np.float32)
STATE = np.dtype([("x", np.float64), ("seen", np.int64), ("grid", np.uint8, (2, 3))])


def body(**changes):
    """Return a class body of an environment that walks; a change to None removes a name."""

    def reset(state, rng):
        state.x = rng.uniform(-1, 1)
        state.seen = 0
        for i in range(2):
            for j in range(3):
                state.grid[i, j] = rng.integers(0, 9)

    def step(state, action, rng):
        state.x += state.speed * (action - 1) + 0.01 * rng.standard_normal()
        state.seen += 1
        return -abs(state.x), abs(state.x) > 4

    def observe(state, out):
        out[0] = state.x
        out[1] = state.grid[1, 2] / 9

    parts = {
        "__doc__": "Walks.",
        "__module__": __name__,
        "observation_space": BOX,
        "action_space": spaces.Discrete(3),
        "state": STATE,
        "parameters": {"speed": 0.5},
        "max_episode_steps": 20,
        "reset": staticmethod(reset),
        "step": staticmethod(step),
        "observe": staticmethod(observe),
        **changes,
    }
    return type("Walk", (), {name: part for name, part in parts.items() if part is not None})


Walk = compiled_env(body())


class WalkByHand:
    """The same environment in plain numpy and math."""

    def reset(self, seed):
        self.rng, self.n = np.random.default_rng(seed), 0
        self.x = self.rng.uniform(-1, 1)
        self.grid = [int(self.rng.integers(0, 9)) for _ in range(6)]
        return self.observe()

    def observe(self):
        return np.array([self.x, self.grid[5] / 9], np.float32)

    def step(self, action):
        self.x += 0.5 * (action - 1) + 0.01 * self.rng.standard_normal()
        self.n += 1
        return self.observe(), -abs(self.x), abs(self.x) > 4, self.n >= 20


@pytest.mark.parametrize("seed", range(5))
def test_it_plays_the_episodes_of_the_same_thing_written_by_hand(seed):
    env, plain = Walk(), WalkByHand()
    for episode in range(3):
        first, info = env.reset(seed=seed + episode)
        assert info == {}
        np.testing.assert_array_equal(first, plain.reset(seed + episode), strict=True)
        for action in np.random.default_rng(seed).integers(0, 3, 30).tolist():
            observation, reward, terminated, truncated, info = env.step(action)
            expected = plain.step(action)
            np.testing.assert_array_equal(observation, expected[0], strict=True)
            assert (reward, terminated, truncated, info) == (*expected[1:], {})
            if terminated or truncated:
                break


class TestWalk(CompiledEnvContract):
    def make_env(self, **options):
        return Walk(**options)


def test_it_is_a_gymnasium_environment():
    assert issubclass(Walk, gym.Env)
    assert (Walk.__name__, Walk.__doc__, Walk.__module__) == ("Walk", "Walks.", __name__)


def test_parameters_and_fields_are_attributes():
    env = Walk(speed=2.0)
    env.reset(seed=0)
    assert env.speed == 2.0
    env.speed, env.x = 0.25, 1.0
    env.step(2)
    assert env.x == pytest.approx(1.25, abs=0.1)
    env.reset()
    assert env.speed == 0.25
    assert env.grid.shape == (2, 3)
    assert env.elapsed_steps == 0
    with pytest.raises(TypeError, match=r"Walk: unknown parameters \['sped'\]"):
        Walk(sped=1)


def _nested():
    def step(state, action, rng):
        state.x += action[0]
        return state.x, False

    def observe(state, out):
        out.place[0] = state.x
        out.number[()] = state.seen

    space = {"place": spaces.Box(-9, 9, (1,)), "number": spaces.Discrete(3)}
    changes = {"step": staticmethod(step), "observe": staticmethod(observe)}
    return body(
        observation_space=spaces.Dict(space), action_space=spaces.Box(-1, 1, (1,)), **changes
    )


Nested = compiled_env(_nested())


class TestNested(CompiledEnvContract):
    def make_env(self, **options):
        return Nested(**options)


def test_dict_observations_and_arrays_of_actions():
    env = Nested()
    first, _ = env.reset(seed=0)
    assert list(first) == ["number", "place"]
    after = env.step(np.array([0.5], np.float32))[0]
    assert after["place"][0] == np.float32(first["place"][0] + 0.5)
    with pytest.raises(ValueError, match=r"action: expected shape \(1,\), got \(2,\)"):
        env.step(np.zeros(2))


def test_steps_out_of_order_and_wrong_actions_are_refused():
    env = Walk()
    with pytest.raises(gym.error.ResetNeeded, match="Walk: call reset before step"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="Walk: action: expected 0 to 2, got 3"):
        env.step(3)
    with pytest.raises(ValueError, match="Walk: options: expected none"):
        env.reset(options={"low": 0})
    with pytest.raises(ValueError, match=r"render_mode: expected None or one of \[\], got 'human'"):
        Walk(render_mode="human")


def test_a_picture_is_drawn_by_plain_python():
    def render(state):
        return np.full((4, 4, 3), int(state.seen), np.uint8)

    env = compiled_env(body(render=staticmethod(render)))(render_mode="rgb_array")
    env.reset(seed=0)
    env.step(1)
    assert env.render().tolist() == np.ones((4, 4, 3), int).tolist()
    assert Walk().render() is None


def _with_self(self, state, rng): ...


WRONG_BODIES = [
    ({"reset": None}, r"Walk: missing \['reset'\]"),
    ({"gravity": 9.8}, r"Walk: unknown names \['gravity'\]"),
    ({"reset": staticmethod(_with_self)}, r"Walk.reset: expected the arguments \('state', 'rng'\)"),
    ({"state": 3}, "Walk.state: expected a dtype with fields"),
    ({"state": np.dtype(float)}, "Walk.state: expected a dtype with fields"),
    ({"state": np.dtype([("text", "U3")])}, "Walk.state: text: expected numbers"),
    ({"state": np.dtype([("step", float)])}, "'step' is a name of every environment"),
    ({"parameters": {"x": 1.0}}, "'x' is a field of the state too"),
    ({"parameters": {"speed": None}}, "speed: expected a bool, int or float, got None"),
    ({"max_episode_steps": 0}, "max_episode_steps: expected at least 1 or None, got 0"),
    ({"observation_space": spaces.Text(3)}, "Walk.observation_space: expected"),
    ({"action_space": spaces.Dict({})}, "Walk.action_space: expected"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_BODIES)
def test_a_wrong_body_is_refused_when_the_class_is_made(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        compiled_env(body(**change))


def test_what_a_function_returns_and_writes_is_checked_before_it_is_compiled():
    def three(state, action, rng):
        return 0.0, False, False

    def no_number(state, action, rng):
        return math.nan, False

    def no_flag(state, action, rng):
        return 0.0, 1

    def outside(state, out):
        out[0] = 77
        out[1] = 0

    def half(state, out):
        out[0] = 0

    def fails(state, rng):
        raise KeyError("lost")

    for change, message in [
        ({"step": three}, r"Walk.step: expected \(reward, terminated\), got"),
        ({"step": no_number}, "Walk.step: reward: expected a finite number, got nan"),
        ({"step": no_flag}, "Walk.step: terminated: expected a bool, got 1"),
        ({"observe": outside}, "Walk.observe: out: expected an element of Box.* after reset"),
        ({"observe": half}, "Walk.observe: out: expected an element of Box.* after reset"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            compiled_env(body(**change))()
    with pytest.raises(KeyError, match="lost") as caught:
        compiled_env(body(reset=fails))()
    assert "in Walk.reset, called as Python with an example" in caught.value.__notes__


def test_what_cannot_be_compiled_is_named_with_its_line():
    def step(state, action, rng):
        state.x += 1
        names = globals()
        return state.x, "state" in names

    cls = compiled_env(body(step=step))
    line = step.__code__.co_firstlineno
    with pytest.raises(TypeError, match=rf"Walk.step cannot be compiled.*, line {line + 2}: "):
        cls()
    assert issubclass(cls, CompiledEnv)


def test_a_name_that_the_record_lacks_is_named_with_the_function():
    def step(state, action, rng):
        if state.x > 99:
            state.xx = 1
        return 0.0, False

    with pytest.raises(TypeError, match=r"Walk.step cannot be compiled.*line \d+: .*xx"):
        compiled_env(body(step=step))()


def test_a_step_after_the_end_is_refused_as_the_functions_need_not_expect_it():
    env = Walk()
    env.reset(seed=0)
    while not any(env.step(1)[2:4]):
        pass
    with pytest.raises(gym.error.ResetNeeded, match="Walk: call reset before step"):
        env.step(1)
    env.reset()
    env.step(1)


@pytest.mark.parametrize("value", [None, "fast", True, [1.0]])
def test_values_of_parameters_are_checked(value):
    with pytest.raises(TypeError, match="Walk: speed: expected a number, got"):
        Walk(speed=value)
    env = Walk()
    with pytest.raises(TypeError, match="Walk: speed: expected a number, got"):
        env.speed = value


@pytest.mark.parametrize("action", [1.5, "left", None, [1]])
def test_actions_that_are_no_whole_numbers_are_refused(action):
    env = Walk()
    env.reset(seed=0)
    with pytest.raises(TypeError, match="Walk: action: expected a whole number, got"):
        env.step(action)


WALK = """
import numpy as np
from gymnasium import spaces
from speeds import SPEED
from parllel.envs.compiled import compiled_env

@compiled_env
class Walk:
    observation_space = spaces.Box(-99, 99, (1,), np.float32)
    action_space = spaces.Discrete(2)
    state = np.dtype([("x", float)])

    @staticmethod
    def reset(state, rng):
        state.x = 0

    @staticmethod
    def step(state, action, rng):
        state.x += SPEED
        return 0.0, False

    @staticmethod
    def observe(state, out):
        out[0] = state.x
"""


def test_a_constant_of_another_module_that_has_changed_is_compiled_anew(tmp_path):
    (tmp_path / "walk.py").write_text(WALK)
    code = "from walk import Walk; env = Walk(); env.reset(seed=0); print(env.step(1)[0][0])"
    for speed in (11, 22):
        (tmp_path / "speeds.py").write_text(f"SPEED = {speed}\n")
        command = [sys.executable, "-B", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert float(done.stdout) == speed


@pytest.mark.soak
def test_a_second_process_compiles_nothing_and_a_third_what_has_changed(tmp_path):
    (tmp_path / "walk.py").write_text(WALK)
    script = """
import numpy as np
from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import VectorizedCage
from parllel.system.compilation import seconds_compiling
from parllel_patterns import build_sampler
from walk import Walk

with VectorizedCage([Walk] * 2, seeds=range(2)) as cage:
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
    with build_sampler(BatchSpec(3, 2), [cage], handler) as sampler:
        samples, _ = sampler.collect_batch(0)
        print(np.asarray(samples.env.observation)[2, 0, 0] / 2, seconds_compiling() > 0)
"""
    (tmp_path / "script.py").write_text(script)
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = []
    for speed in (11, 11, 22):
        (tmp_path / "speeds.py").write_text(f"SPEED = {speed}\n")
        command = [sys.executable, "-B", "script.py"]
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
        )
        said.append(done.stdout.split())
    assert said == [["11.0", "True"], ["11.0", "False"], ["22.0", "True"]]


def test_compiled_functions_are_not_sent_to_other_processes():
    assert hasattr(Walk().functions.compiled.step, "signatures")
    sent = cloudpickle.loads(cloudpickle.dumps(Walk.functions))
    assert "compiled" not in vars(sent)
    assert sent.loops == {}
    assert sent.plain.step is not None
    assert "compiled" in vars(Walk.functions)
