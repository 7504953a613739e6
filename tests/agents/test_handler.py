from __future__ import annotations

import numpy as np
import pytest

from parllel.agents import Agent, NumpyHandler, agent_examples
from parllel.agents.row_views import RowViews
from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    NamedTuple,
    Samples,
    allocate,
    insert_field,
)
from parllel.errors import WrongStateError
from parllel.types import BatchSpec

T, B = 4, 6


class AddingAgent(Agent):
    """The action is the sum of the observation plus noise; the value is ten times the sum."""

    def __init__(self):
        self.generator = np.random.default_rng(0)
        self.mode = "sample"
        self.calls = []

    def step(self, observation, *, env_indices=None, noise=None, **inputs):
        total = self._total(observation)
        self.calls.append((env_indices, noise is not None, inputs))
        action = total if noise is None else total + noise
        return action, NamedTuple(value=10 * total, extra=NamedTuple(double=2 * total))

    def value(self, observation, *, env_indices=None, **inputs):
        self.calls.append((env_indices, inputs))
        return 10 * self._total(observation)

    def draw_noise(self, T, B):
        return self.generator.random((T, B), dtype=np.float32)

    def sample_mode(self):
        self.mode = "sample"

    def train_mode(self):
        self.mode = "train"

    def eval_mode(self):
        self.mode = "eval"

    def state(self):
        return {"mode": self.mode}

    def load_state(self, state):
        self.mode = state["mode"]

    def close(self):
        self.mode = "closed"

    def _total(self, observation):
        if isinstance(observation, NamedTuple):
            return observation.left.sum(-1) + observation.right
        return observation.sum(-1)


def make_samples(observation=None, *, final_value=True, **agent):
    observation = np.zeros(3, np.float32) if observation is None else observation
    zero = np.float32(0)
    info = NamedTuple(value=Field(zero, padding=1), extra=NamedTuple(double=zero))
    fields = {"action": zero, "agent_info": info, **agent}
    if final_value:
        fields["final_value"] = zero
    samples = allocate(
        Samples(
            agent=AgentSamples(**fields),
            env=EnvSamples(
                observation=observation,
                reward=zero,
                terminated=False,
                truncated=False,
                done=False,
                env_info=None,
            ),
        ),
        BatchSpec(T, B),
        padding=1,
    )
    return insert_field(samples, "agent.observation", samples.env.observation)


def fill(array, seed=1):
    rng = np.random.default_rng(seed)
    for t in range(T + 1):
        array[t] = rng.random((B, *array.shape[2:]), dtype=np.float32)
    return np.stack([np.asarray(array[t]) for t in range(T + 1)])


def bound(agent=None, **kwargs):
    handler = NumpyHandler(agent or AddingAgent())
    samples = make_samples(**kwargs)
    handler.bind(samples)
    return handler, samples, fill(samples.env.observation)


GROUPINGS = [[slice(0, 6)], [slice(None)], [slice(0, 3), slice(3, 6)], [slice(4, 6), slice(0, 4)]]


@pytest.mark.parametrize("groups", GROUPINGS)
def test_rows_are_read_and_written_with_the_noise_of_their_cell(groups):
    handler, samples, observation = bound()
    noise = np.random.default_rng(0).random((T, B), dtype=np.float32)
    handler.start_batch()
    for t in range(T):
        for group in groups:
            handler.step(t, group)
    for group in groups:
        handler.bootstrap_value(T, group)
    total = observation.sum(-1)
    agent = samples.agent
    np.testing.assert_allclose(agent.action, total[:T] + noise, rtol=1e-6)
    np.testing.assert_allclose(agent.agent_info.value, 10 * total[:T], rtol=1e-6)
    np.testing.assert_allclose(agent.agent_info.extra.double, 2 * total[:T], rtol=1e-6)
    value = agent.agent_info.value
    np.testing.assert_allclose(value[value.last + 1], 10 * total[T], rtol=1e-6)
    assert handler.agent.calls[0] == (groups[0], True, {})


def test_views_follow_what_environments_write_later():
    handler, samples, _ = bound()
    handler.start_batch()
    handler.step(2, slice(0, B))
    samples.env.observation[2] = np.float32(7)
    handler.step(2, slice(0, B))
    np.testing.assert_array_equal(np.asarray(samples.agent.agent_info.value)[2], 210)


def test_binding_again_moves_to_the_other_buffer():
    handler, first, _ = bound()
    handler.start_batch()
    handler.step(0, slice(0, B))
    before = np.array(first.agent.action)
    second = make_samples()
    fill(second.env.observation, seed=9)
    handler.bind(second)
    handler.start_batch()
    handler.step(0, slice(0, B))
    np.testing.assert_array_equal(first.agent.action, before)
    assert np.asarray(second.agent.action)[0].all()


def test_no_noise_is_drawn_outside_of_sample_mode():
    handler, samples, observation = bound()
    before = handler.agent.generator.bit_generator.state
    for mode in (handler.eval_mode, handler.train_mode):
        mode()
        handler.start_batch()
        handler.step(0, slice(0, B))
    assert handler.agent.generator.bit_generator.state == before
    np.testing.assert_allclose(np.asarray(samples.agent.action)[0], observation[0].sum(-1))
    handler.sample_mode()
    handler.start_batch()
    assert handler.agent.generator.bit_generator.state != before


def test_final_values_go_to_their_cells_and_are_cleared_by_the_next_batch():
    handler, samples, _ = bound()
    handler.start_batch()
    rows, columns = np.array([0, 3, 3]), np.array([5, 0, 2])
    final = np.arange(9, dtype=np.float32).reshape(3, 3)
    handler.final_value(rows, columns, final)
    expected = np.zeros((T, B))
    expected[rows, columns] = 10 * final.sum(-1)
    np.testing.assert_array_equal(samples.agent.final_value, expected)
    assert handler.agent.calls[-1][0] is columns
    handler.start_batch()
    assert not np.asarray(samples.agent.final_value).any()


@pytest.mark.parametrize("kwargs", [{"final_value": False}, {}], ids=["no field", "none ended"])
def test_without_field_or_episodes_the_agent_is_not_asked_for_final_values(kwargs):
    handler, _, _ = bound(**kwargs)
    n = 0 if not kwargs else 2
    index = np.zeros(n, np.intp)
    handler.final_value(index, index, np.zeros((n, 3), np.float32))
    assert handler.agent.calls == []


def test_fields_that_are_none_are_skipped():
    handler, samples, _ = bound(agent_info=None)
    handler.start_batch()
    handler.step(0, slice(0, B))
    handler.bootstrap_value(T, slice(0, B))
    assert np.asarray(samples.agent.action)[0].all()
    assert len(handler.agent.calls) == 1


def test_trees_of_observations():
    space = {"left": np.zeros(2, np.float32), "right": np.float32(0)}
    handler = NumpyHandler(AddingAgent())
    samples = make_samples(space)
    left, right = (fill(samples.env.observation.left), fill(samples.env.observation.right, 2))
    handler.bind(samples)
    handler.eval_mode()
    handler.start_batch()
    handler.step(1, slice(0, B))
    expected = left[1].sum(-1) + right[1]
    np.testing.assert_allclose(np.asarray(samples.agent.action)[1], expected, rtol=1e-6)
    final = {"left": left[0], "right": right[0]}
    expected = left[0].sum(-1) + right[0]
    handler.final_value(np.full(B, 2), np.arange(B), final)
    np.testing.assert_allclose(np.asarray(samples.agent.final_value)[2], 10 * expected, rtol=1e-6)
    np.testing.assert_allclose(handler.act(final, slice(0, B)), expected)
    action, _ = agent_examples(handler, space)
    assert action == 0


class TreeAgent(Agent):
    """Answers with a dict, in another order than the buffer has, and a tuple inside."""

    def step(self, observation, *, env_indices=None, noise=None):
        n = len(observation)
        return {"b": (np.full(n, 3), np.full((n, 2), 4)), "a": np.full(n, 5)}, None


def test_trees_of_actions_are_written_by_name_and_position():
    handler = NumpyHandler(TreeAgent())
    action, info = agent_examples(handler, np.zeros(3, np.float32))
    assert info is None
    samples = make_samples(action=action, agent_info=None)
    handler.bind(samples)
    handler.start_batch()
    handler.step(1, slice(2, 4))
    written = samples.agent.action
    assert np.asarray(written.a)[1].tolist() == [0, 0, 5, 5, 0, 0]
    assert np.asarray(written.b._0)[1].tolist() == [0, 0, 3, 3, 0, 0]
    assert np.asarray(written.b._1)[1, 2:4].tolist() == [[4, 4], [4, 4]]


def test_example_returns_cells_and_disturbs_nothing():
    handler = NumpyHandler(AddingAgent())
    before = handler.agent.generator.bit_generator.state
    action, info = agent_examples(handler, np.ones(3, np.float32))
    assert action == 3
    assert np.shape(action) == ()
    assert info.value == Field(np.float32(30), padding=1)
    assert info.extra.double == Field(np.float32(6), padding=0)
    assert handler.agent.generator.bit_generator.state == before
    assert handler.agent.mode == "sample"
    handler.train_mode()
    agent_examples(handler, np.ones(3, np.float32))
    assert handler.agent.mode == "train"


class IdHandler(NumpyHandler):
    """Adds the number of each column, and the reward of the row before."""

    def agent_inputs(self, observation, rows, columns):
        inputs = {"observation": observation, "ids": np.arange(100, 100 + B)[columns]}
        if isinstance(rows, int):
            inputs["reward"] = self.row_view("env.reward", rows, columns)
        return inputs


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (np.zeros(1), r"an array of shape \(1,\)"),
        (np.zeros((2, 3)), r"an array of shape \(2, 3\)"),
        (NamedTuple(turn=np.zeros(1), push=np.zeros(1)), "a value of type NamedTuple"),
        ((np.zeros(1), None, None), "3 values"),
        (None, "None"),
    ],
)
def test_an_answer_that_is_no_pair_is_refused(answer, got):
    class Lean(AddingAgent):
        def step(self, observation, *, env_indices=None, noise=None):
            return answer

    message = (
        rf"^Lean\.step: expected a pair \(action, agent_info\), got {got}; .* \(action, None\)"
    )
    with pytest.raises(TypeError, match=message):
        agent_examples(NumpyHandler(Lean()), np.ones(3, np.float32))


def test_a_subclass_hands_over_further_inputs():
    handler = IdHandler(AddingAgent())
    samples = make_samples()
    handler.bind(samples)
    np.asarray(samples.env.reward)[2] = np.arange(B)
    handler.start_batch()
    handler.step(2, slice(2, 5))
    inputs = handler.agent.calls[-1][2]
    assert inputs["ids"].tolist() == [102, 103, 104]
    assert inputs["reward"].tolist() == [2, 3, 4]
    handler.final_value(np.array([0]), np.array([5]), np.zeros((1, 3), np.float32))
    assert handler.agent.calls[-1][1]["ids"].tolist() == [105]
    handler.act(np.zeros((2, 3), np.float32), np.array([1, 0]))
    assert handler.agent.calls[-1][2]["ids"].tolist() == [101, 100]


class WrongAgent(AddingAgent):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def step(self, observation, **_):
        return self.answer

    def value(self, observation, **_):
        return np.zeros((len(observation), 1))


OKAY = NamedTuple(value=np.zeros(3), extra=NamedTuple(double=np.zeros(3)))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (np.zeros((3, 1)), OKAY),
            r"agent.action: expected shape \(3,\) for columns 1:4.*\(3, 1\)",
        ),
        ((np.zeros(1), OKAY), r"agent.action: expected shape \(3,\).*returned \(1,\)"),
        ((np.zeros(3), None), r"agent.agent_info.value: the samples have this field"),
        (
            (np.zeros(3), NamedTuple(value=np.zeros(3))),
            r"agent_info.extra.double: the samples have",
        ),
    ],
)
def test_answers_that_do_not_fit_are_refused(answer, message):
    handler, _, _ = bound(WrongAgent(answer))
    handler.start_batch()
    with pytest.raises(ValueError, match=message):
        handler.step(0, slice(1, 4))


def test_final_values_of_a_wrong_shape_are_refused():
    handler, _, _ = bound(WrongAgent(None))
    index = np.array([0, 1])
    with pytest.raises(ValueError, match=r"agent.final_value: expected shape \(2,\).*\(2, 1\)"):
        handler.final_value(index, index, np.zeros((2, 3), np.float32))


def test_sampling_before_bind_is_refused():
    handler = NumpyHandler(AddingAgent())
    with pytest.raises(WrongStateError, match=r"NumpyHandler: .*call bind\(samples\)"):
        handler.start_batch()
    with pytest.raises(WrongStateError, match=r"NumpyHandler: .*call bind\(samples\)"):
        handler.step(0, slice(0, 2))


def test_state_and_close_are_passed_on():
    handler = NumpyHandler(AddingAgent())
    handler.load_state({"mode": "eval"})
    assert handler.state() == {"mode": "eval"}
    handler.close()
    assert handler.agent.mode == "closed"


def test_row_views_are_made_once_and_reach_into_the_padding():
    samples = make_samples()
    converted = []

    def convert(array):
        converted.append(array)
        return array

    views = RowViews(samples.env.observation, convert)
    rows = views.rows(slice(1, 3))
    assert len(rows) == len(converted) == T + 1
    assert views.rows(slice(1, 3)) is rows
    assert len(converted) == T + 1
    rows[T][:] = 5
    last = samples.env.observation.last
    assert np.asarray(samples.env.observation[last + 1])[:, 0].tolist() == [0, 5, 5, 0, 0, 0]
    with pytest.raises(ValueError, match="columns: expected a slice without a step"):
        views.rows(slice(0, 4, 2))
