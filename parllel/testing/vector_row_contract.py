"""Rows of a cage of several environments: what is written, and what is told of episodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from parllel.buffers import buffer_leaves
from parllel.cages import TrajInfo
from parllel.errors import WrongStateError
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.row_face_contract import LongestStep
from parllel.testing.row_reference import (
    assert_same_batches,
    assert_same_tree,
    draw_actions,
    make_samples,
    plain,
    read_batch,
    seeds_of,
    simulate,
)
from parllel.testing.vector_cage_hooks import (
    BATCHES,
    FIRST,
    SEEDS,
    N,
    T,
    VectorCageHooks,
    clocks,
    draw_columns,
    factories_of,
    record_columns,
    run_decorrelation,
    run_groups,
)


class VectorRowContract(VectorCageHooks):
    """What is written into rows, and what is told of episodes."""

    @pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "wait"])
    @pytest.mark.parametrize("layout", ["box", "dict"])
    def test_columns_are_those_of_plain_loops(self, layout: str, automatic: bool) -> None:
        factories = factories_of(end="alternate", layout=layout, reuse=True)
        actions = draw_columns()
        cage, samples = self.bound(factories, T, seeds=SEEDS, reset_automatically=automatic)
        with cage:
            found = record_columns(cage, samples, actions, automatic=automatic)
            acted = cage.actions
        for i in range(N):
            expected = simulate(factories[i](), SEEDS[i], actions[i], automatic=automatic)
            assert_same_batches(found[i], expected)
            waits = [wait for batch in expected for wait in batch.needs_reset[: len(batch.rewards)]]
            taken = [action for batch in actions[i] for action in batch]
            assert acted[i] == [a for a, wait in zip(taken, waits, strict=True) if not wait]

    def test_neighbouring_columns_are_left_alone(self) -> None:
        cage, samples = self.bound(factories_of(layout="dict"), T, seeds=SEEDS)
        with cage:
            leaves = [leaf for _, leaf in buffer_leaves(samples.env)]
            for leaf in leaves:
                leaf[...] = 1
            run_groups(cage, "start_reset", 0)
            for t in range(T):
                run_groups(cage, "start_row", t)
            for leaf in leaves:
                np.testing.assert_array_equal(np.asarray(leaf)[:, [0, N + 1]], 1)
            assert np.asarray(samples.env.reward)[:, FIRST + 2].tolist() == [1, 2, 3, 4, 5]

    def test_infos_are_read_only_where_asked_for(self) -> None:
        factories, actions = factories_of(), draw_columns()
        cage, samples = self.bound(factories, T, info=False, seeds=SEEDS)
        with cage:
            found = record_columns(cage, samples, actions)
        for i in range(N):
            assert_same_batches(
                found[i], simulate(factories[i](), SEEDS[i], actions[i], info=False)
            )

    def test_random_rows_write_their_actions(self) -> None:
        space = spaces.Dict({"a": spaces.Discrete(9, start=3), "b": spaces.Box(-1, 1, (2,))})
        factories = factories_of(action_space=space)
        cage, samples = self.bound(factories, T, seeds=SEEDS)
        with cage:
            run_groups(cage, "start_reset", 0)
            for t in range(T):
                run_groups(cage, "start_random_row", t)
        for i in range(N):
            expected = draw_actions(space, seeds_of(SEEDS[i])[1], 1, T)
            taken = [plain(samples.agent.action, t, FIRST + i) for t in range(T)]
            assert_same_tree(taken, expected[0], f"actions of column {i}")
            rewards = simulate(factories[i](), SEEDS[i], expected)[0].rewards
            found = read_batch(samples, FIRST + i, T).rewards
            assert found == [float(np.float32(reward)) for reward in rewards]

    def test_decorrelation_is_not_reported(self) -> None:
        cage, samples = self.bound([partial(CountingEnv, 4)] * N, T, seeds=SEEDS)
        with cage:
            run_groups(cage, "start_reset", 0)
            run_decorrelation(cage, [10, 0, 3, 4, 1], 0)
            assert cage.needs_reset.tolist() == [False] * N
            assert cage.collect_completed_trajs() == []
            assert cage.collect_final_observations() == []
            assert clocks(samples, 0) == [[2, 2], [0, 0], [0, 3], [1, 0], [0, 1]]
            run_groups(cage, "start_row", 0)
            run_groups(cage, "start_row", 1)
            # Episodes that were in progress are reported whole.
            assert [traj.length for traj in cage.collect_completed_trajs()] == [4, 4]
            final = {(found.row, found.column) for found in cage.collect_final_observations()}
            assert final == {(1, FIRST), (0, FIRST + 2)}

    def test_decorrelation_that_cannot_be_is_refused(self) -> None:
        lengths = [1, 9, 9, 9, 1]
        factories = [partial(CountingEnv, length) for length in lengths]
        cage, samples = self.bound(factories, T, seeds=SEEDS, reset_automatically=False)
        with cage:
            run_groups(cage, "start_reset", 0)
            for counts in ([1] * (N + 1), [], [1, 1, 1, 1, -1]):
                with pytest.raises(ValueError, match=f"counts: expected {N} of at least 0"):
                    run_decorrelation(cage, counts, 0)
            run_groups(cage, "start_row", 0)
            for column in (0, N - 1):  # these have ended and wait
                counts = [int(i == column) for i in range(N)]
                with pytest.raises(WrongStateError, match="before a reset"):
                    run_decorrelation(cage, counts, 0)
            run_decorrelation(cage, [0, 2, 2, 2, 0], 0)
            assert clocks(samples, 0)[1:4] == [[0, 3]] * 3
            run_groups(cage, "start_reset", 1, everyone=False)
            assert clocks(samples, 1) == [[1, 0], [0, 1], [0, 1], [0, 1], [1, 0]]

    @pytest.mark.parametrize("kind", [TrajInfo, LongestStep])
    def test_trajectories_span_batches(self, kind: Any) -> None:
        cage, samples = self.bound(
            factories_of(), T, seeds=SEEDS, traj_info=partial(kind, discount=0.5)
        )
        actions = draw_columns()
        completed: list[list[Any]] = []
        with cage:
            run_groups(cage, "start_reset", 0)
            for k in range(BATCHES):
                for t in range(T):
                    for i in range(N):
                        samples.agent.action[t, FIRST + i] = actions[i][k][t]
                    run_groups(cage, "start_row", t)
                    # What a transform makes of the buffer does not reach the records.
                    samples.env.reward[t] = -100.0
                completed.append(cage.collect_completed_trajs())
        expected = [
            simulate(factory(), seed, each, discount=0.5)
            for factory, seed, each in zip(factories_of(), SEEDS, actions, strict=True)
        ]
        for k in range(BATCHES):
            found = [(t.length, t.return_, t.discounted_return) for t in completed[k]]
            assert found == [traj for column in expected for traj in column[k].trajs]
            assert {type(traj).__name__ for traj in completed[k]} == {kind.__name__}
            if kind is LongestStep:
                assert all(traj.last_step == traj.length for traj in completed[k])

    def test_seeds_decide(self) -> None:
        factories = [partial(CountingEnv, (2, 3, 5), random_lengths=True)] * N
        found = []
        for seeds in (SEEDS, SEEDS, [*SEEDS[:-1], 9]):
            cage, samples = self.bound(factories, T, seeds=seeds)
            with cage:
                run_groups(cage, "start_reset", 0)
                for t in range(T):
                    run_groups(cage, "start_random_row", t)
                found.append([read_batch(samples, FIRST + i, T) for i in range(N)])
        assert_same_batches(found[0], found[1])
        assert_same_batches(found[0][:-1], found[2][:-1])
        assert found[0][-1].observations[0][0] != found[2][-1].observations[0][0]
        # Equal seeds: environments of one cage that nothing else tells apart.
        assert found[0][2].observations[0][0] == found[0][4].observations[0][0]

    def test_groups_are_stepped_apart(self) -> None:
        cage, samples = self.bound([partial(CountingEnv, 9)] * N, T, seeds=SEEDS)
        with cage:
            groups = cage.groups
            edges = [groups[0].start, *(group.stop for group in groups)]
            assert edges == sorted({*edges, 0, N})  # in order, without gaps, all of them
            assert [group.start for group in groups] == edges[:-1]
            steps = [0] * N
            last = len(groups) - 1
            for method in ("start_reset", "finish_row"):
                for group in {0, last}:
                    getattr(cage, method)(group=group)
            for t, order in enumerate(([0], [0, last], [last, 0], [last], [0])):
                order = list(dict.fromkeys(order))
                for group in order:
                    cage.start_row(t, group)
                for group in reversed(order) if t == 1 else order:
                    cage.finish_row(group)
                stepped = {i for group in order for i in range(N)[groups[group]]}
                for i in stepped:
                    steps[i] += 1
                # Rows of the others are as they were allocated.
                expected = [[0, steps[i] if i in stepped else 0] for i in range(N)]
                assert clocks(samples, t + 1) == expected
            assert [len(acted) for acted in cage.actions] == steps

    def test_two_cages_share_a_buffer(self) -> None:
        samples = make_samples(CountingEnv(), T, 2 * N, storage=self.storage)
        factories = [partial(CountingEnv, 9)] * N
        with (
            self.make(factories, samples=samples, seeds=SEEDS) as one,
            self.make(factories, samples=samples, seeds=range(N), index=N) as other,
        ):
            one.set_samples_buffer(samples, slice(0, N))
            other.set_samples_buffer(samples, slice(N, 2 * N))
            for cage in (one, other):
                run_groups(cage, "start_reset", 0)
            for t in range(T):
                samples.agent.action[t] = np.arange(2 * N) % 4
                for cage in (one, other):
                    run_groups(cage, "start_row", t)
            rewards = np.asarray(samples.env.reward)
            expected = np.arange(1, T + 1)[:, None] + np.arange(2 * N) % 4 / 8
            np.testing.assert_array_equal(rewards, expected)

    def test_a_second_buffer_can_be_bound(self) -> None:
        if self.storage == "shared":
            pytest.skip("shared memory is handed over once, at the start")
        cage, samples = self.bound([partial(CountingEnv, 9)] * N, T, seeds=SEEDS)
        with cage:
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            other = make_samples(CountingEnv(), 3, N + 2, storage=self.storage)
            cage.set_samples_buffer(other, slice(FIRST, FIRST + N))
            run_groups(cage, "start_row", 2)
            assert clocks(other, 3) == [[0, 2]] * N
            assert clocks(samples, 3) == [[0, 0]] * N
            with pytest.raises(IndexError, match="row 3: expected 0 to 2"):
                run_groups(cage, "start_row", 3)
            cage.set_samples_buffer(samples, slice(0, N))  # other columns too
            run_groups(cage, "start_row", 4)
            assert plain(samples.env.observation, 5, 0)[2] == 3
