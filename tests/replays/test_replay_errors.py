"""What a replay refuses, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay_model import Model, Setup, Writer, make_buffer

from parllel.buffers import Field, NamedArrayTuple, add_fields, allocate
from parllel.errors import WrongStateError
from parllel.replays import UniformReplay
from parllel.types import BatchSpec


def make(samples: Any = None, **changes: Any) -> UniformReplay:
    samples = make_buffer(Setup(), 3) if samples is None else samples
    options = {"batch_size": 4, "discount": 0.9, "seed": 0, **changes}
    return UniformReplay(samples, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected an int of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size: expected an int"),
        ({"batch_size": True}, "batch_size: expected an int"),
        ({"n_step": 0}, "n_step: expected an int of at least 1, got 0"),
        ({"discount": 1.01}, "discount: expected 0 to 1"),
        ({"discount": float("nan")}, "discount: expected 0 to 1"),
        ({"n_step": 9}, r"expected more than 9 rows for n_step=9, got 9 \(3 batches of 3\)"),
        ({"reward": "env.clipped"}, "env.clipped is missing"),
        ({"reward": "env.done"}, "env.done: expected float32 or float64, got bool"),
    ],
)
def test_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_n_step_may_use_all_rows_but_the_oldest():
    assert make(n_step=8).n_step == 8


def test_stacks_of_frames_need_more_rows():
    with pytest.raises(ValueError, match="for n_step=7 and 3 frames, got 9"):
        make(make_buffer(Setup(k=3), 3), n_step=7)


def test_a_buffer_of_one_batch():
    with pytest.raises(ValueError, match=r"got one batch; allocate_samples\(..., n_batches=...\)"):
        make(make_buffer(Setup(), 1))


def test_what_is_no_buffer():
    with pytest.raises(TypeError, match="samples: expected Samples, got dict"):
        make({})


def without(samples: Any, node: str, name: str) -> Any:
    part = getattr(samples, node)
    fields = {key: value for key, value in part._asdict().items() if key != name}
    return samples._replace(**{node: type(part)._make(fields)})


def test_missing_fields():
    samples = make_buffer(Setup(), 3)
    with pytest.raises(ValueError, match=r"agent.final_observation is missing; give FinalObser"):
        make(without(samples, "agent", "final_observation"))
    with pytest.raises(ValueError, match=r"agent.observation is missing"):
        make(without(samples, "agent", "observation"))


def test_fields_of_another_size():
    samples = make_buffer(Setup(), 3)
    other = allocate(np.float32(0), BatchSpec(3, 2), batches=2)
    with pytest.raises(ValueError, match=r"samples: expected all arrays .* got \[2, 3\]"):
        make(samples._replace(env=samples.env._replace(reward=other)))
    single = allocate(np.float32(0), BatchSpec(3, 2))
    with pytest.raises(ValueError, match=r"env.reward: expected the whole field with 3 batches"):
        make(samples._replace(env=samples.env._replace(reward=single)))
    tree = NamedArrayTuple(a=samples.env.reward, b=samples.env.reward)
    with pytest.raises(ValueError, match=r"env.reward: expected one reward per step"):
        make(samples._replace(env=samples.env._replace(reward=tree)))
    final = allocate(Field(np.zeros(4, np.float32)), BatchSpec(3, 2))
    with pytest.raises(ValueError, match=r"agent.final_observation: expected cells like"):
        make(samples._replace(agent=samples.agent._replace(final_observation=final)))


def test_switching_arrays():
    samples = make_buffer(Setup(), 3)
    switching = allocate(np.float32(0), BatchSpec(3, 2), batches=3, switching=True)
    with pytest.raises(ValueError, match="expected no switching arrays"):
        make(samples._replace(env=samples.env._replace(reward=switching)))


def test_nothing_to_draw():
    setup = Setup(T=1)
    writer = Writer(setup, Model(setup, 3, 0.9))
    writer.memory = writer.samples = make_buffer(setup, 5)
    replay = make(writer.memory, n_step=3)
    for _ in range(3):
        assert replay.n_stored == 0
        with pytest.raises(WrongStateError, match=r"nothing to draw yet, .* after 3 rows"):
            replay.sample()
        replay.add(writer.write_batch())
    assert replay.n_stored == 2
    replay.sample()


def started(own: bool) -> tuple[Writer, UniformReplay]:
    setup = Setup(own=own)
    writer = Writer(setup, Model(setup, 1, 0.9))
    replay = make(writer.memory)
    replay.add(writer.write_batch())
    return writer, replay


def test_a_batch_that_is_added_twice():
    writer, replay = started(own=True)
    with pytest.raises(WrongStateError, match="this batch was added already"):
        replay.add(writer.samples)


@pytest.mark.parametrize("n_forgotten", [1, 3])
def test_a_batch_that_is_forgotten(n_forgotten):
    writer, replay = started(own=True)
    for _ in range(n_forgotten):
        writer.write_batch()
        with pytest.raises(
            WrongStateError, match=r"a batch has been started .* since the last add"
        ):
            replay.sample()
    writer.write_batch()
    with pytest.raises(WrongStateError, match=f"{n_forgotten} batches were collected but not"):
        replay.add(writer.samples)


def test_a_part_of_a_batch():
    writer, replay = started(own=True)
    batch = writer.write_batch()
    with pytest.raises(ValueError, match="expected the whole batch of 3 rows, got 2 of them"):
        replay.add(batch[:2])


def test_own_and_other_batches_in_one_replay():
    writer, replay = started(own=True)
    writer.write_batch()
    with pytest.raises(ValueError, match="expected the replay's own buffer"):
        replay.add(make_buffer(Setup(), 1))
    _, replay = started(own=False)
    with pytest.raises(ValueError, match="expected another batch in other memory"):
        replay.add(replay.samples)


def test_a_batch_in_other_memory_that_is_added_twice():
    writer, replay = started(own=False)
    with pytest.raises(WrongStateError, match="this batch was added already"):
        replay.add(writer.samples)
    replay.add(writer.write_batch())
    assert replay.n_stored == 12


def test_equal_batches_of_an_environment_that_never_changes_are_taken():
    _, replay = started(own=False)
    batch = make_buffer(Setup(), 1)
    for _ in range(4):
        replay.add(batch)
    assert replay.n_stored == 16


def test_two_replays_that_copy_into_one_buffer():
    writer, replay = started(own=False)
    second = make(replay.samples)
    second.add(writer.samples)
    second.add(make_buffer(Setup(), 1))
    with pytest.raises(WrongStateError, match="something else has moved the buffer"):
        replay.add(writer.write_batch())
    with pytest.raises(WrongStateError, match="a batch has been started"):
        replay.sample()


def test_two_replays_over_the_buffer_of_one_sampler():
    writer, replay = started(own=True)
    second = make(writer.memory, seed=0)
    second.add(writer.samples)
    for _ in range(5):
        batch = writer.write_batch()
        replay.add(batch)
        second.add(batch)
        np.testing.assert_array_equal(replay.sample().observation, second.sample().observation)


def test_other_batches_that_do_not_fit():
    _, replay = started(own=False)
    batch = make_buffer(Setup(), 1)
    with pytest.raises(ValueError, match=r"the batch lacks a field: .*final_observation"):
        replay.add(without(batch, "agent", "final_observation"))
    with pytest.raises(ValueError, match=r"agent.action: expected a batch \(3, 2\), got \(2, 2\)"):
        replay.add(make_buffer(Setup(T=2), 1))
    with pytest.raises(ValueError, match="expected a batch"):
        replay.add(make_buffer(Setup(k=2), 1))
    # Nothing was moved or counted.
    assert replay.n_stored == 6
    replay.sample()


def test_a_batch_without_the_row_after_it():
    _, replay = started(own=False)
    batch = make_buffer(Setup(), 1)
    short = allocate(np.zeros(3, np.float32), BatchSpec(3, 2))
    batch = batch._replace(
        agent=batch.agent._replace(observation=short),
        env=batch.env._replace(observation=short),
    )
    with pytest.raises(ValueError, match="expected row T too, the observation after the batch"):
        replay.add(batch)


def test_states_of_other_replays():
    _, replay = started(own=True)
    other = make(make_buffer(Setup(), 4))
    with pytest.raises(ValueError, match=r"expected the rows of a buffer of size .*'N': 4"):
        other.load_state(replay.state())
    other = make(make_buffer(Setup(layout="dict"), 3))
    with pytest.raises(ValueError, match="expected rows of shapes"):
        other.load_state(replay.state())


def test_further_fields_are_copied_where_both_have_them():
    setup = Setup(own=False)
    writer = Writer(setup, Model(setup, 1, 0.9))
    extra = {"agent.extra": np.float32(0)}
    spec = BatchSpec(setup.T, setup.B)
    memory = add_fields(writer.memory, extra, spec, batches=3)
    writer.samples = add_fields(writer.samples, extra, spec)
    replay = make(memory)
    for number in range(3):
        writer.samples.agent.extra[...] = number
        replay.add(writer.write_batch())
    assert np.asarray(memory.agent.extra.full)[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
