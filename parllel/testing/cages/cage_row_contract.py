"""Contract of the rows that a cage writes and the episodes that it reports."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from parllel.buffers.tree import buffer_leaves
from parllel.cages.traj_info import TrajInfo
from parllel.testing.cages.cage_hooks import (
    BATCHES,
    FIRST,
    SEEDS,
    CageHooks,
    T,
    record_columns,
    run,
    run_groups,
    run_rows,
)
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    assert_same_tree,
    draw_actions,
    make_samples,
    plain,
    read_batch,
    seeds_of,
    simulate,
)
from parllel.testing.dummy_envs import CountingEnv


class LongestStep(TrajInfo):
    """TrajInfo with an extra field, defined here so that workers have to import it."""

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


class CageRowContract(CageHooks):
    """Tests of `start_*` and `finish_row`, of trajectories and of final observations."""

    @pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "wait"])
    @pytest.mark.parametrize("layout", ["box", "dict"])
    def test_columns_are_those_of_plain_loops(self, layout: str, automatic: bool) -> None:
        # With one array for all observations, as simulators have it: a row that is stored late, or a final
        # observation that is kept without a copy, has the numbers of a later step.
        factories = self.factories(end="alternate", layout=layout, reuse=True)
        actions = self.actions()
        cage, samples = self.bound(factories, reset_automatically=automatic)
        with cage:
            found = record_columns(cage, samples, actions, automatic=automatic)
            acted = self.each(cage.actions)
        for i in range(self.n):
            expected = simulate(factories[i](), SEEDS[i], actions[i], automatic=automatic)
            assert_same_batches(found[i], expected)
            waits = [wait for batch in expected for wait in batch.needs_reset[: len(batch.rewards)]]
            taken = [action for batch in actions[i] for action in batch]
            # Waiting environments get no actions: a step after the end is undefined in Gymnasium.
            assert acted[i] == [a for a, wait in zip(taken, waits, strict=True) if not wait]

    def test_neighbouring_columns_are_left_alone(self) -> None:
        cage, samples = self.bound(self.factories(layout="dict"))
        with cage:
            leaves = [leaf for _, leaf in buffer_leaves(samples.env)]
            for leaf in leaves:
                # Not zeros, with which the memory begins: a worker that clears cells of others
                # would go unnoticed.
                leaf[...] = 1
            run_rows(cage, T)
            for leaf in leaves:
                # Other cages write there at the same time.
                np.testing.assert_array_equal(np.asarray(leaf)[:, [0, self.n + 1]], 1)
            assert np.asarray(samples.env.reward)[:, FIRST].tolist() == [1, 2, 3, 1, 1]

    def test_infos_are_read_only_where_asked_for(self) -> None:
        factories, actions = self.factories(), self.actions()
        # Infos may hold anything, so a buffer without them must not make a cage look into them.
        cage, samples = self.bound(factories, info=False)
        with cage:
            found = record_columns(cage, samples, actions)
        for i in range(self.n):
            expected = simulate(factories[i](), SEEDS[i], actions[i], info=False)
            assert_same_batches(found[i], expected)

    def test_random_rows_write_their_actions(self) -> None:
        space = spaces.Dict({"a": spaces.Discrete(9, start=3), "b": spaces.Box(-1, 1, (2,))})
        factories = self.factories(action_space=space)
        cage, samples = self.bound(factories)
        with cage:
            run_rows(cage, T, "start_random_row")
        for i in range(self.n):
            expected = draw_actions(space, seeds_of(SEEDS[i])[1], 1, T)
            taken = [plain(samples.agent.action, t, FIRST + i) for t in range(T)]
            # Of the action space's own generator, in order: random exploration can be repeated.
            assert_same_tree(taken, expected[0], f"actions of column {i}")
            rewards = simulate(factories[i](), SEEDS[i], expected)[0].rewards
            found = read_batch(samples, FIRST + i, T).rewards
            assert found == [float(np.float32(reward)) for reward in rewards]

    @pytest.mark.parametrize("all_envs", [True, False])
    def test_a_reset_begins_the_next_episode(self, all_envs: bool) -> None:
        """Reset those that wait, or all; an episode that is cut short is not reported."""
        # The first and the last end, so that columns are taken from the right end of each worker's share.
        lengths = [2, 9, 9, 9, 2][: self.n]
        ends = [length == 2 for length in lengths]
        factories = [partial(CountingEnv, length) for length in lengths]
        cage, samples = self.bound(factories, reset_automatically=False)
        with cage:
            run_rows(cage, 3)
            assert cage.needs_reset.tolist() == ends
            run_groups(cage, "start_reset", T, all_envs=all_envs)
            assert cage.needs_reset.tolist() == [False] * self.n
            # Those that are not reset leave the row as it was.
            expected = [[1, 0] if all_envs or end else [0, 0] for end in ends]
            assert self.clocks(samples, T) == expected
            run_groups(cage, "start_row", 0)
            expected = [[1, 1] if all_envs or end else [0, 4] for end in ends]
            assert self.clocks(samples, 1) == expected
            run_groups(cage, "start_row", 1)
            # Neither rows in which an environment waited nor an episode that was cut short count.
            lengths = [traj.length for traj in cage.collect_completed_trajs()]
            assert lengths == [2, 2] * sum(ends)
            assert len(cage.collect_final_observations()) == 2 * sum(ends)

    def test_a_reset_of_those_that_wait_leaves_the_others(self) -> None:
        cage, samples = self.bound([partial(CountingEnv, 9)] * self.n)
        with cage:
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            # Nobody waits, so no process has anything to do. It must report the command all the
            # same: main waits for the word or the reply of each.
            run_groups(cage, "start_reset", 1, all_envs=False)
            assert self.clocks(samples, 1) == [[0, 1]] * self.n

    def test_decorrelation_is_not_reported(self) -> None:
        cage, samples = self.bound([partial(CountingEnv, 4)] * self.n)
        with cage:
            run_groups(cage, "start_reset", 0)
            # Through two ends, not at all, into an episode, to its end: the next row begins at all places.
            # One call for all groups, whose workers take different numbers of steps: `finish_row`
            # must wait for the slowest, and every process must take its own part of the counts.
            run(cage, "start_decorrelation", [10, 0, 3, 4, 1][: self.n], 0)
            assert cage.needs_reset.tolist() == [False] * self.n
            assert cage.collect_completed_trajs() == []
            assert cage.collect_final_observations() == []
            assert self.clocks(samples, 0) == [[2, 2], [0, 0], [0, 3], [1, 0], [0, 1]][: self.n]
            run_groups(cage, "start_row", 0)
            run_groups(cage, "start_row", 1)
            # Episodes that were in progress are reported whole.
            trajs = cage.collect_completed_trajs()
            assert [traj.length for traj in trajs] == [4, 4][: self.n]
            drawn = draw_actions(spaces.Discrete(4), seeds_of(SEEDS[0])[1], 1, 10)[0]
            # Two of the rewards come from decorrelation: without them the return would be too small.
            assert trajs[0].return_ == 1 + 2 + 3 + 4 + (drawn[8] + drawn[9]) / 8
            final = [(found.row, found.column) for found in cage.collect_final_observations()]
            assert sorted(final, reverse=True) == [(1, FIRST), (0, FIRST + 2)][: self.n]
            # What was completed before stays.
            run_rows(cage, 4)
            run(cage, "start_decorrelation", [4] * self.n, 0)
            assert [traj.length for traj in cage.collect_completed_trajs()] == [4] * self.n

    @pytest.mark.parametrize("kind", [TrajInfo, LongestStep])
    def test_trajectories_span_batches(self, kind: Any) -> None:
        # A power of two, so that discounted sums are exact.
        options = {"discount": 0.5, **({"base": 4.0} if kind is LongestStep else {})}
        cage, samples = self.bound(self.factories(), traj_info=partial(kind, **options))
        actions = self.actions()
        completed: list[list[Any]] = []
        with cage:
            run_groups(cage, "start_reset", 0)
            for k in range(BATCHES):
                for t in range(T):
                    for i in range(self.n):
                        samples.agent.action[t, FIRST + i] = actions[i][k][t]
                    run_groups(cage, "start_row", t)
                    # What a transform makes of the buffer does not reach the records.
                    samples.env.reward[t] = -100.0
                # In every batch, as sums of an episode are kept where it is stepped: an episode
                # that spans batches must survive the collections in between.
                completed.append(cage.collect_completed_trajs())
        expected = [
            simulate(factory(), seed, each, discount=0.5)
            for factory, seed, each in zip(self.factories(), SEEDS, actions, strict=False)
        ]
        for k in range(BATCHES):
            found = [(t.length, t.return_, t.discounted_return) for t in completed[k]]
            # By column and not by the time of each worker's report, or a seed would not give the
            # same order for every division among processes.
            assert found == [traj for column in expected for traj in column[k].trajs]
            assert {type(traj).__name__ for traj in completed[k]} <= {kind.__name__}
            for traj in completed[k] if kind is LongestStep else ():
                assert traj.last_step == traj.length
                largest = traj.largest_reward
                assert max(4, traj.length) <= largest <= max(4, traj.length + 3 / 8)

    def test_seeds_decide(self) -> None:
        seeds = SEEDS[: self.n]
        factories = [partial(CountingEnv, (2, 3, 5), random_lengths=True)] * self.n
        found = []
        # Twice the same, then one other: only its own column may differ.
        for chosen in (seeds, seeds, [*seeds[:-1], 9]):
            cage, samples = self.bound(factories, seeds=chosen)
            with cage:
                run_rows(cage, T, "start_random_row")
                found.append([read_batch(samples, FIRST + i, T) for i in range(self.n)])
        assert_same_batches(found[0], found[1])
        assert_same_batches(found[0][:-1], found[2][:-1])
        marks = [batch.observations[0][0] for batch in found[0]]
        assert marks[-1] != found[2][-1].observations[0][0]
        # Environments of one cage with equal seeds are equal, and others are not.
        assert len(set(marks)) == len(set(seeds))

    def test_groups_are_stepped_apart(self) -> None:
        cage, samples = self.bound([partial(CountingEnv, 9)] * self.n)
        with cage:
            groups = cage.groups
            edges = [groups[0].start, *(group.stop for group in groups)]
            assert edges == sorted({*edges, 0, self.n})  # in order, without gaps, all of them
            assert [group.start for group in groups] == edges[:-1]
            steps = [0] * self.n
            last = len(groups) - 1
            for method in ("start_reset", "finish_row"):
                # A group in between is not even reset. Its rows must stay as they were allocated,
                # although every worker reads every command.
                for group in {0, last}:
                    getattr(cage, method)(group=group)
            # One group alone, both in either order, and finished in the order of their start or against it.
            for t, order in enumerate(([0], [0, last], [last, 0], [last], [0])):
                order = list(dict.fromkeys(order))
                # Two rows in progress at a time. A worker handles the commands in the order of
                # their start, whichever group is finished first.
                for group in order:
                    cage.start_row(t, group)
                for group in reversed(order) if t == 1 else order:
                    cage.finish_row(group)
                stepped = {i for group in order for i in range(self.n)[groups[group]]}
                for i in stepped:
                    steps[i] += 1
                # Rows of the others are as they were allocated.
                expected = [[0, steps[i] if i in stepped else 0] for i in range(self.n)]
                assert self.clocks(samples, t + 1) == expected
            assert [len(acted) for acted in self.each(cage.actions)] == steps

    def test_two_cages_share_a_buffer(self) -> None:
        n = self.n
        # As evaluations and mixed environments have it: none may write beyond its own columns.
        samples = make_samples(CountingEnv(), T, 2 * n, storage=self.storage)
        factories = [partial(CountingEnv, 9)] * n
        with (
            # Each with its own workers, over one memory. Only the columns keep them apart: a batch
            # has no lock.
            self.made(factories, samples=samples) as one,
            self.made(factories, samples=samples, index=n) as other,
        ):
            one.set_samples_buffer(samples, slice(0, n))
            other.set_samples_buffer(samples, slice(n, 2 * n))
            for cage in (one, other):
                run_groups(cage, "start_reset", 0)
            for t in range(T):
                samples.agent.action[t] = np.arange(2 * n) % 4
                for cage in (one, other):
                    run_groups(cage, "start_row", t)
            rewards = np.asarray(samples.env.reward)
            expected = np.arange(1, T + 1)[:, None] + np.arange(2 * n) % 4 / 8
            np.testing.assert_array_equal(rewards, expected)

    def test_a_second_buffer_can_be_bound(self) -> None:
        if self.storage == "shared":
            pytest.skip("shared memory is handed over once, at the start")
        n = self.n
        cage, samples = self.bound([partial(CountingEnv, 9)] * n)
        with cage:
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            # Shorter than the first, so that a row number that was right there is wrong here.
            other = make_samples(CountingEnv(), 3, n + 2, storage=self.storage)
            cage.set_samples_buffer(other, slice(FIRST, FIRST + n))
            run_groups(cage, "start_row", 2)
            assert self.clocks(other, 3) == [[0, 2]] * n
            # A worker that still held the first buffer would have written its row 3.
            assert self.clocks(samples, 3) == [[0, 0]] * n
            with pytest.raises(IndexError, match="row 3: expected 0 to 2"):
                run_groups(cage, "start_row", 3)
            # After an error of the row, which must leave the cage open: it was refused before any
            # process was asked.
            cage.set_samples_buffer(samples, slice(0, n))  # other columns too
            run_groups(cage, "start_row", 4)
            assert plain(samples.env.observation, 5, 0)[2] == 3
