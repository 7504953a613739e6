"""Contract of cages of native vector environments.

Inherit it and define `make_env`, and pytest collects the tests:

class TestMyEnvs(NativeCageContract):
    def make_env(self, n):
        return MyVectorEnv(n)

For environments within a SyncVectorEnv there is `CageContract` as well, see `MakesSyncVectorCage`.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from parllel.buffers.samples import Samples
from parllel.cages.stepping.make_envs import VectorEnvFactory
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.errors import ClosedError, WrongStateError
from parllel.testing.cages.cage_hooks import FIRST, record_columns, run, run_groups, run_rows
from parllel.testing.cages.native_cage_hooks import BATCHES, SEEDS, N, NativeCageHooks
from parllel.testing.cages.native_reference import simulate_together
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    draw_actions,
    read_batch,
    seeds_of,
)


class NativeCageContract(NativeCageHooks):
    """Tests that compare a cage's rows with the vector environment itself, across ends of episodes."""

    @pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "wait"])
    def test_columns_are_those_of_the_environment_itself(self, automatic: bool) -> None:
        if self.rests and not automatic:
            pytest.skip("as tested by CageContract")
        cage, samples = self.bound(reset_automatically=automatic)
        space = cage.spaces.action
        actions = [draw_actions(space, i, BATCHES, self.T) for i in range(N)]
        with cage:
            for leaf in (samples.env.reward, samples.env.observation):
                # A cell that the cage does not write shows as 1, not as the 0 of new memory.
                leaf[...] = 1
            found = record_columns(cage, samples, actions, automatic=automatic)
            # Other cages write there at the same time.
            assert np.all(np.asarray(samples.env.reward)[:, [0, N + 1]] == 1)
        # The reference makes a second environment, with the same seeds, and steps it with the same
        # actions: nothing of the cage can make the two agree by chance.
        env, observation = self.directly()
        rows = [
            [[actions[i][k][t] for i in range(N)] for t in range(self.T)] for k in range(BATCHES)
        ]
        # The action that the cage gives to waiting environments (`VectorStepper._idle_action`).
        # Their steps are ignored, but may draw from generators that the environments share.
        idle = copy.deepcopy(space)
        idle.seed(0)
        expected = simulate_together(
            env,
            observation,
            rows,
            self.mode,
            self.reset_some,
            automatic=automatic,
            idle_action=idle.sample(),
        )
        env.close()
        for i in range(N):
            assert_same_batches(found[i], expected[i])
        # Over the ends of episodes, of which none of the rows is a step that was ignored.
        assert sum(len(batch.final) for column in expected for batch in column) >= N

    def test_random_rows_and_seeds(self) -> None:
        found = []
        # Twice the same, then other seeds for all: some native environments draw one seed from all
        # of them, so a single seed that differs may change every column.
        for seeds in (SEEDS, SEEDS, (3, 4, 5, 9)):
            cage, samples = self.bound(seeds=seeds)
            with cage:
                run_rows(cage, self.T, "start_random_row")
                for i, seed in enumerate(seeds):
                    drawn = draw_actions(cage.spaces.action, seeds_of(seed)[1], 1, self.T)[0]
                    acted = np.asarray(samples.agent.action)[:, FIRST + i]
                    np.testing.assert_array_equal(acted, np.array(drawn, acted.dtype))
                found.append([read_batch(samples, FIRST + i, self.T) for i in range(N)])
        assert_same_batches(found[0], found[1])
        one, other = (np.array(batches[0].observations) for batches in found[1:])
        assert not np.array_equal(one, other)

    def test_decorrelation_counts_its_own_steps(self) -> None:
        cage, _ = self.bound()
        counts = [3, 0, 1, 2]
        with cage:
            run_groups(cage, "start_reset", 0)
            run(cage, "start_decorrelation", counts, 0)
            assert cage.collect_completed_trajs() == []
            assert cage.collect_final_observations() == []
            lengths: list[list[int]] = [[] for _ in range(N)]
            ends: list[list[int]] = [[] for _ in range(N)]
            # Long enough that each environment ends an episode, which the comparison below needs.
            for k in range(4 * BATCHES):
                for t in range(self.T):
                    run_groups(cage, "start_random_row", t)
                # A stable sort: the ends of a column stay in the order of time, like the episodes.
                order = sorted(cage.collect_final_observations(), key=lambda one: one.column)
                trajs = cage.collect_completed_trajs()
                for one, traj in zip(order, trajs, strict=True):
                    ends[one.column - FIRST].append(k * self.T + one.row + 1)
                    lengths[one.column - FIRST].append(traj.length)
            assert all(lengths)
        # The first episode has the random steps as well, and all steps are those of some episode.
        for count, own, rows in zip(counts, lengths, ends, strict=True):
            assert np.cumsum(own).tolist() == [row + count for row in rows]

    def test_states(self) -> None:
        """A restored state continues as the environment itself, or as a reset with another seed."""
        cage, samples = self.bound()
        with cage:
            run_groups(cage, "start_reset", 0)
            first = self.random_batch(cage, samples)
            # A checkpoint is made after the collection: ended episodes are not part of a state.
            cage.collect_completed_trajs()
            states = cage.environment_states()
            assert all((state["missing"] is None) == self.has_state for state in states)
            # The first cage goes on after its states were taken. States that share memory with the
            # environment would then hold the end of this batch.
            expected = self.fill_batch(cage, samples)
        cage, samples = self.bound()
        with cage:
            cage.load_environment_states(states, salt=5)
            if self.has_state:
                assert self.fill_batch(cage, samples) == expected
                # Refused before any environment has loaded its own, or some would be in the
                # restored episode and others not.
                with pytest.raises(ValueError, match="states: expected 4, one per environment"):
                    cage.load_environment_states(states[:1], salt=5)
            else:
                assert cage.needs_reset.all()
                # From a seed and the salt: the first seed would repeat the episodes of the run that
                # was saved.
                run_groups(cage, "start_reset", 0, all_envs=False)
                assert not cage.needs_reset.any()
                # Of a whole batch: many seeds begin with the same picture.
                assert self.random_batch(cage, samples) != first

    def random_batch(self, cage: VectorizedCage, samples: Samples) -> Any:
        """Return the observations of a batch of random rows, with that before the first."""
        for t in range(self.T):
            run_groups(cage, "start_random_row", t)
        return [self.observations(samples, t) for t in range(self.T + 1)]

    def fill_batch(self, cage: VectorizedCage, samples: Samples) -> Any:
        """Return the results of a batch of random rows."""
        for t in range(self.T):
            run_groups(cage, "start_random_row", t)
        rows = [read_batch(samples, FIRST + i, self.T) for i in range(N)]
        trajs = [(traj.length, traj.return_) for traj in cage.collect_completed_trajs()]
        # Without row 0, which a cage that loaded its states has never written.
        observations = [[*map(np.ndarray.tolist, row.observations[1:])] for row in rows]
        return observations, [(row.rewards, row.done) for row in rows], trajs

    def test_a_reset_of_all_begins_new_episodes(self) -> None:
        cage, samples = self.bound()
        with cage:
            with pytest.raises(WrongStateError, match="before a reset"):
                run_groups(cage, "start_row", 0)
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_random_row", 0)
            moved = self.observations(samples, 1)
            run_groups(cage, "start_reset", 1)
            assert self.observations(samples, 1) != moved
            # Those that need no reset are left alone.
            fresh = self.observations(samples, 1)
            run_groups(cage, "start_reset", 1, all_envs=False)
            assert self.observations(samples, 1) == fresh
            assert cage.collect_completed_trajs() == []

    def test_closing_is_final(self) -> None:
        cage, _ = self.bound()
        # Twice: a native environment may hold threads or a pool that fails if it is closed again.
        cage.close()
        cage.close()
        for method in ("start_reset", "finish_row", "environment_states"):
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                getattr(cage, method)()

    def test_another_number_of_environments_is_refused(self) -> None:
        def make(n: int, seed: Any = None) -> Any:
            return factory.make(N + 1, None if seed is None else [*seed, 0])

        factory = VectorEnvFactory(self.make_env)
        given = VectorEnvFactory(make if factory.takes_seed else lambda n: make(n))
        # It has been made by then and is closed by the cage: nobody else has a reference.
        with pytest.raises(
            ValueError, match=f"expected a vector environment that steps {N} environments"
        ):
            VectorizedCage(given, n=N, seeds=SEEDS)
