"""Contract of a cage's errors, of access to its environments, and of closing."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from parllel.errors import ClosedError, WrongStateError
from parllel.testing.cages.cage_hooks import CageHooks, T, await_done, notes_of, run, run_groups
from parllel.testing.cages.row_reference import assert_same_batches, make_samples, read_batch
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv

NINE = partial(CountingEnv, 9)


class CageRulesContract(CageHooks):
    """Tests of rejected calls, failures, and access to environments."""

    def test_a_buffer_that_does_not_fit_is_refused(self) -> None:
        n = self.n
        # Main refuses wrong columns, and the workers refuse fields that do not suit the spaces. By
        # then some may have bound their share, so the next buffer must reach all of them anew.
        with self.made([CountingEnv] * n, index=4) as cage:
            for env, message in (
                (CountingEnv(layout="scalar"), r"env\.observation: .* Array \[T, B, \*\[3\]"),
                (CountingEnv(layout="dict"), r"env\.observation: expected an Array"),
                (CountingEnv(action_space=spaces.MultiBinary(3)), r"agent\.action: expected"),
            ):
                with pytest.raises(ValueError, match=message):
                    cage.set_samples_buffer(make_samples(env, T, n), slice(0, n))
            samples = make_samples(CountingEnv(), T, n + 1)
            # Too many, too few, beyond the end, and counted from the end, which slices of numpy would accept.
            for columns in (slice(0, n + 1), slice(0, n - 1), slice(2, n + 2), slice(-1, n - 1)):
                with pytest.raises(ValueError, match=f"columns: expected {n} of the {n + 1}"):
                    cage.set_samples_buffer(samples, columns)
            with pytest.raises(TypeError, match="expected Samples"):
                cage.set_samples_buffer(samples.env, slice(0, n))
            # Without a row T there is no place for what the last step led to.
            unpadded = samples.env._replace(observation=samples.env.observation[:T])
            with pytest.raises(ValueError, match=r"env\.observation: expected padding"):
                cage.set_samples_buffer(samples._replace(env=unpadded), slice(0, n))
            # After all refusals the cage must still take one that fits.
            cage.set_samples_buffer(samples, slice(1, n + 1))
            run_groups(cage, "start_reset", 0)

    def test_calls_in_a_wrong_order_change_nothing(self) -> None:
        n = self.n
        cage, samples = self.bound([NINE] * n)
        with cage:
            for method in ("start_row", "start_random_row"):
                with pytest.raises(WrongStateError, match="before a reset"):
                    run_groups(cage, method, 0)
            with pytest.raises(WrongStateError, match="before a reset"):
                run(cage, "start_decorrelation", [1] * n, 0)
            with pytest.raises(WrongStateError, match=r"finish_row\(\) was called without a start"):
                cage.finish_row()
            run_groups(cage, "start_reset", 0)
            # Only group 0: with several groups, calls that concern all of them are refused too.
            cage.start_row(0)
            # In processes, all of these would read or write what a worker is writing.
            for method, args in self.calls_at_rest(samples):
                with pytest.raises(WrongStateError, match="is not finished"):
                    getattr(cage, method)(*args)
            cage.finish_row()
            for group in range(1, len(cage.groups)):
                cage.start_row(0, group)
                cage.finish_row(group)
            assert self.clocks(samples, 1) == [[0, 1]] * n
            # It writes columns of every group, so no group may be started until it is finished.
            cage.start_decorrelation([1] * n, 2)
            with pytest.raises(WrongStateError, match="decorrelation is not finished"):
                cage.start_row(1)
            cage.finish_row()
            with pytest.raises(WrongStateError, match=r"finish_row\(\) was called without a start"):
                cage.finish_row()
            assert self.clocks(samples, 2) == [[0, 2]] * n
            # A call that was refused in one place must not have started another group.
            assert [len(acted) for acted in self.each(cage.actions)] == [2] * n

    def calls_at_rest(self, samples: Any) -> list[tuple[str, tuple[Any, ...]]]:
        """Return all calls that an idle cage accepts."""
        return [
            ("start_reset", (0,)),
            ("start_row", (0,)),
            ("start_random_row", (0,)),
            ("start_decorrelation", ([1] * self.n, 0)),
            ("set_samples_buffer", (samples, slice(0, self.n))),
            ("collect_completed_trajs", ()),
            ("collect_final_observations", ()),
            ("env_method", ("add", 1)),
            ("render", ()),
        ]

    def test_a_started_row_says_when_it_is_done(self) -> None:
        n = self.n
        cage, samples = self.bound([NINE] * n)
        groups = range(len(cage.groups))
        with cage:
            for method in ("start_reset", "start_row"):
                for group in groups:
                    with pytest.raises(
                        WrongStateError, match=r"row_done\(\) was called without a start"
                    ):
                        cage.row_done(group)
                    getattr(cage, method)(0, group=group)
                # Against the order of the start, and twice, as asking takes nothing from the answer.
                for group in reversed(groups):
                    await_done(cage, group)
                    assert cage.row_done(group)
                    # The reply that `row_done` may have read from a pipe must still be there for
                    # `finish_row`.
                    cage.finish_row(group)
            cage.start_row(1)
            for group in (-1, len(groups)):
                with pytest.raises(IndexError, match=rf"group {group}: expected 0"):
                    cage.row_done(group)
            cage.finish_row()
            for group in groups[1:]:
                with pytest.raises(
                    WrongStateError, match=r"row_done\(\) was called without a start"
                ):
                    cage.row_done(group)
                cage.start_row(1, group)
                cage.finish_row(group)
            cage.start_decorrelation([1] * n, 2)
            await_done(cage)
            cage.finish_row()
            assert self.clocks(samples, 2) == [[0, 3]] * n

    def test_a_failed_row_is_done(self) -> None:
        # A loop over `row_done` learns of a failure only from `finish_row`, so a row that failed
        # must count as done, or that loop never ends. A cage in this process raises in `start_row`,
        # hence the context around all of it.
        cage, _ = self.bound([partial(FaultyEnv, "step", lengths=9)] * self.n)
        with pytest.raises(DummyFaultError, match="step number 1"), cage:
            self._fail_done(cage)

    def _fail_done(self, cage: Any) -> None:
        run_groups(cage, "start_reset", 0)
        cage.start_row(0)
        await_done(cage)
        cage.finish_row()

    # Row -1 may be padding and row T + 1 the next batch: both are memory that exists.
    @pytest.mark.parametrize("t", [-1, T + 1])
    def test_rows_outside_the_batch_are_refused(self, t: int) -> None:
        cage, samples = self.bound([NINE] * self.n)
        with cage:
            run_groups(cage, "start_reset", 0)
            for method in ("start_row", "start_random_row", "start_reset"):
                last = T if method == "start_reset" else T - 1
                with pytest.raises(IndexError, match=rf"row {t}: expected 0 to {last}"):
                    run_groups(cage, method, t)
            with pytest.raises(IndexError, match=rf"row {t}: expected 0 to {T}"):
                run(cage, "start_decorrelation", [1] * self.n, t)
            run_groups(cage, "start_row", 0)
            assert self.clocks(samples, 1) == [[0, 1]] * self.n

    def test_groups_that_are_not_there_are_refused(self) -> None:
        cage, _ = self.bound([NINE] * self.n)
        with cage:
            run_groups(cage, "start_reset", 0)
            for group in (-1, len(cage.groups)):
                for method in ("start_row", "start_random_row", "start_reset"):
                    with pytest.raises(IndexError, match=rf"group {group}: expected 0"):
                        getattr(cage, method)(0, group=group)
                cage.start_row(0)
                with pytest.raises(IndexError, match=rf"group {group}: expected 0"):
                    cage.finish_row(group)
                cage.finish_row()
            # What was refused has stepped nothing: only group 0 moved.
            steps = [len(acted) for acted in self.each(cage.actions)]
            first = cage.groups[0]
            assert steps == [2 * (first.start <= i < first.stop) for i in range(self.n)]

    def test_decorrelation_that_cannot_be_is_refused(self) -> None:
        n = self.n
        lengths = [1, 9, 9, 9, 1][:n]
        factories = [partial(CountingEnv, length) for length in lengths]
        cage, samples = self.bound(factories, reset_automatically=False)
        with cage:
            run_groups(cage, "start_reset", 0)
            for counts in ([1] * (n + 1), [], [1] * (n - 1) + [-1]):
                with pytest.raises(ValueError, match=f"counts: expected {n} nonnegative integers"):
                    run(cage, "start_decorrelation", counts, 0)
            run_groups(cage, "start_row", 0)
            # In the first process and the last: the refusal must come before any process steps, or
            # the columns of one worker would be ahead of the others.
            for column in (0, n - 1):  # these have ended and wait
                counts = [int(i == column) for i in range(n)]
                with pytest.raises(WrongStateError, match="before a reset"):
                    run(cage, "start_decorrelation", counts, 0)
            run(cage, "start_decorrelation", [0, 2, 2, 2, 0][:n], 0)
            assert self.clocks(samples, 0)[1:4] == [[0, 3]] * len(range(n)[1:4])
            run_groups(cage, "start_reset", 1, all_envs=False)
            assert self.clocks(samples, 1) == [[1, 0], [0, 1], [0, 1], [0, 1], [1, 0]][:n]
            # Random steps reset what ends on the way; rows leave it waiting, as before.
            run_groups(cage, "start_row", 1)
            assert cage.needs_reset.tolist() == [length == 1 for length in lengths]

    def test_rows_need_a_buffer(self) -> None:
        with self.made([CountingEnv] * self.n) as cage:
            for method in ("start_reset", "start_row", "start_random_row"):
                with pytest.raises(WrongStateError, match="no samples buffer was set"):
                    run_groups(cage, method, 0)
            with pytest.raises(WrongStateError, match="no samples buffer was set"):
                run(cage, "start_decorrelation", [1] * self.n, 0)
            assert self.each(cage.gravity) == [9.8] * self.n

    @pytest.mark.parametrize("phase", ["constructor", "reset", "step"])
    def test_what_an_environment_raises_arrives_as_itself(self, phase: str) -> None:
        number = 1 if phase == "constructor" else 2
        # In the first and the last: they may be in different processes, whose errors come by different ways.
        for column in {0, self.n - 1}:
            faulty: Any = partial(FaultyEnv, phase, number=number, lengths=9)
            factories: list[Any] = [NINE] * self.n
            factories[column] = faulty
            samples = make_samples(CountingEnv(), T, self.n, storage=self.storage)
            with pytest.raises(DummyFaultError, match=f"{phase} number {number}") as caught:
                self.fail_in_phase(factories, samples, column)
            # An attribute of the exception, which must survive the way through a pipe.
            assert caught.value.number == number
            said = notes_of(caught.value)
            # The number is that of the whole sampler, as users count: the cage has those from 4 on.
            assert f"in environment {4 + column}" in said
            assert ("while it was made" if phase == "constructor" else f"during {phase}") in said

    def fail_in_phase(self, factories: list[Any], samples: Any, column: int) -> None:
        """Take environments through all phases; what the one of a column writes stays when it fails."""
        with self.made(factories, samples=samples, index=4) as cage:
            cage.set_samples_buffer(samples, slice(0, self.n))
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            before = read_batch(samples, column, T)
            # The second call of a phase is the one that fails. What a column held before must not
            # be half overwritten, although its worker ended in the middle of a row.
            try:
                run_groups(cage, "start_row", 1)
                before = read_batch(samples, column, T)
                run_groups(cage, "start_reset", 0)
            finally:  # nothing came of what failed
                assert_same_batches([read_batch(samples, column, T)], [before])

    def test_environments_have_the_same_spaces(self) -> None:
        if self.n == 1:
            pytest.skip("one environment has none to differ from")
        # The odd one is in the last process, which compares its own environments with one another.
        # Where it has only this one, main finds the difference when it compares the processes.
        factories: list[Any] = [CountingEnv] * (self.n - 1)
        with (
            pytest.raises(ValueError, match="its spaces differ from those of"),
            self.made([*factories, partial(CountingEnv, layout="dict")]) as cage,
        ):
            _ = cage.spaces

    def test_attributes_and_methods_are_reached_through_wrappers(self) -> None:
        def wrapped(make: Any) -> Any:  # which no other process can import
            return gym.wrappers.TimeLimit(make(), 100)

        n = self.n
        cage, samples = self.bound([partial(wrapped, make) for make in self.factories()])
        with cage:
            assert cage.n == n
            assert cage.spaces.name == self.env_name("CountingEnv")
            assert cage.spaces.action == spaces.Discrete(4)
            assert cage.spaces.observation == CountingEnv().observation_space
            # One value per environment, in the order of the columns, whichever process holds it.
            lengths = [make().lengths for make in self.factories()]
            assert self.each(cage.lengths) == lengths
            assert self.each(cage.env_method("add", 1, right=2)) == [3] * n
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            pictures = [int(picture.max()) for picture in self.each(cage.render())]
            assert pictures == [1, 0, 1, 1, 1][:n]
            # Each arrives as it is, whether or not it goes through a pipe.
            for value in (3.0, {"a": [1]}, (2,)):
                cage.gravity = value
                assert self.each(cage.gravity) == [value] * n
            cage.gravity = np.arange(3.0)  # which compares item by item
            found = np.asarray(self.each(cage.gravity))
            np.testing.assert_array_equal(found, np.tile(np.arange(3.0), (n, 1)))
            run_groups(cage, "start_row", 1)
            assert self.clocks(samples, 2)[0] == [0, 2]

    def test_a_failing_attribute_or_method_leaves_the_environments_well(self) -> None:
        with self.made([CountingEnv] * self.n) as cage:
            # `_mark` is there, but what begins with an underscore is the environment's own affair.
            for name in ("weather", "_mark"):
                with pytest.raises(AttributeError, match=name):
                    getattr(cage, name)
            with pytest.raises(
                AttributeError, match=r"an attribute 'gravitiy' to set \(similar names: .*'gravity'"
            ):
                # Setting a misspelt name would make a new attribute, and leave the old value in use.
                cage.gravitiy = 3.0
            assert not hasattr(cage, "gravitiy")
            # A call that raises is answered like any other: each worker goes on, and every answer
            # is read, or the next call would be given one of these.
            with pytest.raises(ValueError, match="sunshine"):
                cage.env_method("fail", "sunshine")
            with pytest.raises(AttributeError, match="weather"):
                cage.env_method("weather")
            with pytest.raises(TypeError, match="argument"):
                cage.env_method("add")
            assert self.each(cage.gravity) == [9.8] * self.n

    # As in most scripts. Plain pickle refuses them.
    def test_factories_may_be_lambdas(self) -> None:
        length = 2
        with self.made([lambda: CountingEnv(length)] * self.n) as cage:
            assert self.each(cage.lengths) == [(2,)] * self.n

    def test_closing_is_final(self) -> None:
        cage, samples = self.bound([CountingEnv] * self.n)
        run_groups(cage, "start_reset", 0)
        # The second call must neither wait for ended processes nor close an environment again.
        cage.close()
        cage.close()
        for method, args in [*self.calls_at_rest(samples), ("finish_row", ()), ("row_done", ())]:
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                getattr(cage, method)(*args)
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            _ = cage.gravity
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            cage.gravity = 1.0
        # What the cage knows by itself needs no process.
        assert (cage.n, cage.groups[-1].stop) == (self.n, self.n)
        # Samples may still be read: closing a cage takes no memory from its buffer.
        assert self.clocks(samples, 0) == [[0, 0]] * self.n

    def test_closing_before_something_is_finished(self) -> None:
        # An error in the middle of a batch closes cages whose workers are still stepping.
        for method, args in (("start_reset", (0,)), ("start_decorrelation", ([3] * self.n, 0))):
            cage, _ = self.bound([CountingEnv] * self.n)
            run_groups(cage, "start_reset", 0)
            getattr(cage, method)(*args)
            # It must not wait for the row: the results are not needed, and a worker that steps
            # reads no request.
            cage.close()
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                cage.finish_row()
