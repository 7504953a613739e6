"""The row face of a cage: what samplers rely on."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from parllel.buffers import buffer_leaves
from parllel.cages import TrajInfo
from parllel.errors import ClosedError, WrongStateError
from parllel.testing.cage_hooks import COLUMN, CageHooks, notes_of, run
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.testing.row_reference import (
    assert_same_batches,
    assert_same_tree,
    draw_actions,
    make_samples,
    plain,
    read_batch,
    record,
    seeds_of,
    simulate,
)

T = 5
LENGTHS = (3, 1, 4, 7)


class LongestStep(TrajInfo):
    """Remembers more than its parent; defined here, so that workers have to be told of it."""

    def __init__(self, discount: float = 1.0, base: float = 0.0) -> None:
        super().__init__(discount)
        self.largest_reward = base
        self.last_step = -1

    def step(
        self,
        observation: Any,
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        env_info: dict[str, Any],
    ) -> None:
        """Look at reward and info."""
        super().step(observation, action, reward, terminated, truncated, env_info)
        self.largest_reward = max(self.largest_reward, reward)
        self.last_step = env_info["step"]


class RowFaceContract(CageHooks):
    """Tests of `start_*` and `finish_row`."""

    @pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "wait"])
    @pytest.mark.parametrize("layout", ["box", "dict"])
    def test_rows_are_those_of_a_plain_loop(self, layout: str, automatic: bool) -> None:
        factory = partial(CountingEnv, LENGTHS, end="alternate", layout=layout, reuse=True)
        actions = draw_actions(spaces.Discrete(4), 0, 4, T)
        cage, samples = self.bound(factory, T, seed=7, reset_automatically=automatic)
        with cage:
            found = record(cage, samples, COLUMN, actions, automatic=automatic)
            assert cage.actions == _acted(found, actions)
        expected = simulate(factory(), 7, actions, automatic=automatic)
        assert_same_batches(found, expected)

    def test_neighbouring_columns_are_left_alone(self) -> None:
        cage, samples = self.bound(partial(CountingEnv, LENGTHS, layout="dict"), T, seed=7)
        with cage:
            leaves = [leaf for _, leaf in buffer_leaves(samples.env)]
            for leaf in leaves:
                leaf[...] = 1
            run(cage, "start_reset", 0)
            for t in range(T):
                run(cage, "start_row", t)
            for leaf in leaves:
                others = np.delete(np.asarray(leaf), COLUMN, axis=1)
                np.testing.assert_array_equal(others, 1)
            assert np.asarray(samples.env.reward)[:, COLUMN].tolist() != [1] * T

    def test_an_ended_environment_waits_and_writes_zeros(self) -> None:
        cage, samples = self.bound(partial(CountingEnv, 2), T, seed=7, reset_automatically=False)
        with cage:
            run(cage, "start_reset", 0)
            for _, leaf in buffer_leaves(samples.env):
                leaf[3:] = 1
                if leaf.padding:
                    leaf[leaf.last + 1] = 1
            needs = []
            for t in range(T):
                run(cage, "start_row", t)
                needs.append(cage.needs_reset.tolist())
            assert needs == [[False], [True], [True], [True], [True]]
            batch = read_batch(samples, COLUMN, T)
            assert batch.rewards == [1.0, 2.0, 0.0, 0.0, 0.0]
            assert batch.done == [False, True, False, False, False]
            np.testing.assert_array_equal(batch.observations[3:], np.zeros((3, 3)))
            assert len(cage.collect_completed_trajs()) == 1
            assert len(cage.collect_final_observations()) == 1

    @pytest.mark.parametrize("everyone", [True, False])
    def test_the_reset_after_an_end_begins_the_next_episode(self, everyone: bool) -> None:
        cage, samples = self.bound(partial(CountingEnv, 2), T, seed=7, reset_automatically=False)
        with cage:
            run(cage, "start_reset", 0)
            for t in range(3):
                run(cage, "start_row", t)
            run(cage, "start_reset", 0, everyone=everyone)
            assert cage.needs_reset.tolist() == [False]
            _, episode, step = plain(samples.env.observation, 0, COLUMN)
            assert (episode, step) == (1, 0)
            run(cage, "start_row", 0)
            assert plain(samples.env.observation, 1, COLUMN)[1:].tolist() == [1, 1]

    def test_reset_of_everyone_ends_the_episode_unreported(self) -> None:
        cage, samples = self.bound(partial(CountingEnv, 9), T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            run(cage, "start_row", 0)
            run(cage, "start_reset", 1, everyone=False)
            assert plain(samples.env.observation, 1, COLUMN)[1:].tolist() == [0, 1]
            run(cage, "start_reset", T)
            assert plain(samples.env.observation, T, COLUMN)[1:].tolist() == [1, 0]
            assert cage.collect_completed_trajs() == []
            assert cage.collect_final_observations() == []

    def test_infos_are_read_only_where_asked_for(self) -> None:
        cage, samples = self.bound(partial(CountingEnv, LENGTHS), T, info=False, seed=7)
        with cage:
            actions = draw_actions(spaces.Discrete(4), 0, 1, T)
            found = record(cage, samples, COLUMN, actions)
        assert_same_batches(found, simulate(CountingEnv(LENGTHS), 7, actions, info=False))

    def test_random_rows_write_their_actions(self) -> None:
        space = spaces.Dict({"a": spaces.Discrete(9, start=3), "b": spaces.Box(-1, 1, (2,))})
        factory = partial(CountingEnv, LENGTHS, action_space=space)
        cage, samples = self.bound(factory, T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            for t in range(T):
                run(cage, "start_random_row", t)
            taken = [plain(samples.agent.action, t, COLUMN) for t in range(T)]
            rewards = read_batch(samples, COLUMN, T).rewards
        expected = draw_actions(space, seeds_of(7)[1], 1, T)
        assert_same_tree(taken, expected[0], "actions")
        assert rewards == [
            float(np.float32(r)) for r in simulate(factory(), 7, expected)[0].rewards
        ]

    def test_decorrelation_is_not_reported(self) -> None:
        cage, samples = self.bound(partial(CountingEnv, 4), T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            run(cage, "start_decorrelation", [10], 0)
            assert cage.needs_reset.tolist() == [False]
            assert cage.collect_completed_trajs() == []
            assert cage.collect_final_observations() == []
            assert plain(samples.env.observation, 0, COLUMN)[1:].tolist() == [2, 2]
            for t in range(2):
                run(cage, "start_row", t)
            # The episode that was in progress is reported whole.
            (traj,) = cage.collect_completed_trajs()
            drawn = draw_actions(spaces.Discrete(4), seeds_of(7)[1], 1, 10)[0]
            assert traj.length == 4
            assert traj.return_ == 1 + 2 + 3 + 4 + (drawn[8] + drawn[9]) / 8
            (final,) = cage.collect_final_observations()
            assert (final.row, final.column) == (1, COLUMN)

    def test_decorrelation_keeps_what_was_completed_before(self) -> None:
        cage, _ = self.bound(partial(CountingEnv, 2), T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            run(cage, "start_row", 0)
            run(cage, "start_row", 1)
            run(cage, "start_decorrelation", [4], 0)
            assert [traj.length for traj in cage.collect_completed_trajs()] == [2]

    @pytest.mark.parametrize("counts", [[1, 1], [], [-1]])
    def test_decorrelation_takes_one_count_each(self, counts: list[int]) -> None:
        cage, samples = self.bound(CountingEnv, T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            with pytest.raises(ValueError, match="counts: expected 1 of at least 0"):
                run(cage, "start_decorrelation", counts, 0)
            run(cage, "start_row", 0)
            assert plain(samples.env.observation, 1, COLUMN)[2] == 1

    def test_trajectories_span_batches_and_take_a_subclass(self) -> None:
        made = partial(LongestStep, discount=0.5, base=-5.0)
        cage, samples = self.bound(partial(CountingEnv, 7), T, seed=7, traj_info=made)
        actions = draw_actions(spaces.Discrete(4), 0, 4, T)
        with cage:
            run(cage, "start_reset", 0)
            completed = []
            for batch in actions:
                for t, action in enumerate(batch):
                    samples.agent.action[t, COLUMN] = action
                    run(cage, "start_row", t)
                    # What a transform makes of the buffer does not reach the records.
                    samples.env.reward[t, COLUMN] = -100.0
                completed += cage.collect_completed_trajs()
        taken = [action for batch in actions for action in batch]
        rewards = [[k + 1 + a / 8 for k, a in enumerate(taken[i : i + 7])] for i in (0, 7)]
        assert [traj.length for traj in completed] == [7, 7]
        for traj, steps in zip(completed, rewards, strict=True):
            assert type(traj).__name__ == "LongestStep"
            assert traj.return_ == sum(steps)
            assert traj.discounted_return == sum(r * 0.5**k for k, r in enumerate(steps))
            assert (traj.largest_reward, traj.last_step) == (max(steps), 7)

    def test_seeds_decide(self) -> None:
        factory = partial(CountingEnv, (2, 3, 5), random_lengths=True)
        found = [self._random_batches(factory, seed) for seed in (7, 7, 8)]
        assert_same_batches(found[0], found[1])
        assert found[0][0].observations[0][0] != found[2][0].observations[0][0]

    def _random_batches(self, factory: Any, seed: int) -> Any:
        cage, samples = self.bound(factory, T, seed=seed)
        with cage:
            run(cage, "start_reset", 0)
            for t in range(T):
                run(cage, "start_random_row", t)
            return [read_batch(samples, COLUMN, T)]

    def test_a_second_buffer_can_be_bound(self) -> None:
        if self.storage == "shared":
            pytest.skip("shared memory is handed over once, at the start")
        cage, samples = self.bound(partial(CountingEnv, 9), T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            run(cage, "start_row", 0)
            other = make_samples(CountingEnv(), 3, 2, storage=self.storage)
            cage.set_samples_buffer(other, slice(0, 1))
            run(cage, "start_row", 2)
            assert plain(other.env.observation, 3, 0)[2] == 2
            assert plain(samples.env.observation, 3, COLUMN)[2] == 0
            cage.set_samples_buffer(samples, slice(0, 1))
            run(cage, "start_row", 4)
            assert plain(samples.env.observation, 5, 0)[2] == 3

    def test_a_buffer_that_does_not_fit_is_refused(self) -> None:
        with self.make(CountingEnv, seed=7, index=4) as cage:
            for env, message in (
                (
                    CountingEnv(layout="scalar"),
                    r"env\.observation: expected an Array \[T, B, \*\[3\]",
                ),
                (CountingEnv(layout="dict"), r"env\.observation: expected an Array"),
                (
                    CountingEnv(action_space=spaces.MultiBinary(3)),
                    r"agent\.action: expected an Array",
                ),
            ):
                samples = make_samples(env, T, 3)
                with pytest.raises(ValueError, match=message):
                    cage.set_samples_buffer(samples, slice(0, 1))
            samples = make_samples(CountingEnv(), T, 3)
            for columns in (slice(0, 2), slice(1, 1), slice(3, 4), slice(-1, 0)):
                with pytest.raises(ValueError, match="columns: expected"):
                    cage.set_samples_buffer(samples, columns)
            with pytest.raises(TypeError, match="expected Samples"):
                cage.set_samples_buffer(samples.env, slice(0, 1))
            unpadded = samples._replace(
                env=samples.env._replace(observation=make_samples(CountingEnv(), T, 3).env.reward)
            )
            with pytest.raises(ValueError, match=r"env\.observation"):
                cage.set_samples_buffer(unpadded, slice(0, 1))
            cage.set_samples_buffer(make_samples(CountingEnv(), T, 3), slice(0, 1))
            run(cage, "start_reset", 0)

    def test_calls_in_a_wrong_order_change_nothing(self) -> None:
        cage, samples = self.bound(partial(CountingEnv, 9), T, seed=7)
        with cage:
            for method in ("start_row", "start_random_row"):
                with pytest.raises(WrongStateError, match="before a reset"):
                    run(cage, method, 0)
            with pytest.raises(WrongStateError, match="before a reset"):
                run(cage, "start_decorrelation", [1], 0)
            with pytest.raises(WrongStateError, match=r"finish_row\(\) without a start"):
                cage.finish_row()
            cage.start_reset(0)
            for method, args in (
                ("start_reset", (0,)),
                ("start_row", (0,)),
                ("start_random_row", (0,)),
                ("start_decorrelation", ([1], 0)),
                ("set_samples_buffer", (samples, slice(0, 1))),
                ("collect_completed_trajs", ()),
                ("collect_final_observations", ()),
                ("step_async", (0,)),
                ("reset_async", ()),
                ("env_method", ("add", 1)),
                ("render", ()),
            ):
                with pytest.raises(WrongStateError, match="is not finished"):
                    getattr(cage, method)(*args)
            with pytest.raises(WrongStateError, match="without a step_async"):
                cage.await_step()
            cage.finish_row()
            run(cage, "start_row", 0)
            assert plain(samples.env.observation, 1, COLUMN)[1:].tolist() == [0, 1]
            assert cage.actions == [0]

    @pytest.mark.parametrize("method", ["start_row", "start_random_row", "start_reset"])
    @pytest.mark.parametrize("t", [-1, T + 1])
    def test_rows_outside_the_batch_are_refused(self, method: str, t: int) -> None:
        cage, samples = self.bound(partial(CountingEnv, 9), T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            last = T if method == "start_reset" else T - 1
            with pytest.raises(IndexError, match=rf"row {t}: expected 0 to {last}"):
                run(cage, method, t)
            with pytest.raises(IndexError, match=rf"row {t}: expected 0 to {T}"):
                run(cage, "start_decorrelation", [1], t)
            run(cage, "start_row", 0)
            assert plain(samples.env.observation, 1, COLUMN)[1:].tolist() == [0, 1]

    @pytest.mark.parametrize("group", [-1, 1])
    def test_groups_that_are_not_there_are_refused(self, group: int) -> None:
        cage, samples = self.bound(partial(CountingEnv, 9), T, seed=7)
        with cage:
            run(cage, "start_reset", 0)
            for method in ("start_row", "start_random_row", "start_reset"):
                with pytest.raises(IndexError, match=rf"group {group}: expected 0"):
                    getattr(cage, method)(0, group=group)
            cage.start_row(0)
            with pytest.raises(IndexError, match=rf"group {group}: expected 0"):
                cage.finish_row(group)
            cage.finish_row()
            assert plain(samples.env.observation, 1, COLUMN)[1:].tolist() == [0, 1]
            assert cage.actions == [0]

    def test_rows_need_a_buffer(self) -> None:
        with self.make(CountingEnv, seed=7) as cage:
            for method, args in (
                ("start_reset", (0,)),
                ("start_row", (0,)),
                ("start_random_row", (0,)),
                ("start_decorrelation", ([1], 0)),
            ):
                with pytest.raises(WrongStateError, match="no samples buffer was set"):
                    run(cage, method, *args)
            assert cage.gravity == 9.8

    @pytest.mark.parametrize("phase", ["reset", "step"])
    def test_what_an_environment_raises_arrives_as_itself(self, phase: str) -> None:
        factory = partial(FaultyEnv, phase, number=2)
        cage, samples = self.bound(factory, T, seed=7, index=4)
        with cage:
            run(cage, "start_reset", 0)
            run(cage, "start_row", 0)
            before = read_batch(samples, COLUMN, T)
            with pytest.raises(DummyFaultError, match=f"{phase} number 2") as caught:
                run(cage, "start_row" if phase == "step" else "start_reset", 1)
        assert caught.value.number == 2
        said = notes_of(caught.value)
        assert "environment 4 (FaultyEnv)" in said
        assert f"during {phase}" in said
        assert_same_batches([read_batch(samples, COLUMN, T)], [before])

    def test_closing_is_final(self) -> None:
        cage, samples = self.bound(CountingEnv, T, seed=7)
        run(cage, "start_reset", 0)
        cage.close()
        cage.close()
        for method, args in (
            ("start_reset", (0,)),
            ("start_row", (0,)),
            ("start_random_row", (0,)),
            ("start_decorrelation", ([1], 0)),
            ("finish_row", ()),
            ("set_samples_buffer", (samples, slice(0, 1))),
            ("collect_completed_trajs", ()),
            ("collect_final_observations", ()),
            ("step_async", (0,)),
            ("random_step_async", ()),
            ("reset_async", ()),
            ("await_step", ()),
            ("env_method", ("add", 1)),
            ("render", ()),
        ):
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                getattr(cage, method)(*args)
        assert (cage.n, cage.groups) == (1, [slice(0, 1)])
        assert plain(samples.env.observation, 0, COLUMN)[1:].tolist() == [0, 0]

    def test_closing_while_something_is_under_way(self) -> None:
        cage, _ = self.bound(CountingEnv, T, seed=7)
        cage.start_reset(0)
        cage.close()
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            cage.finish_row()


def _acted(batches: Any, actions: Any) -> list[Any]:
    """Return the actions of rows in which the environment was not waiting."""
    return [
        action
        for batch, row in zip(batches, actions, strict=True)
        for waits, action in zip(batch.needs_reset, row, strict=False)
        if not waits
    ]
