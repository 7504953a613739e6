"""Rules of a cage of several environments: what is refused, what fails, and how environments are reached."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from parllel.errors import ClosedError, WrongStateError
from parllel.testing.cage_hooks import notes_of
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.testing.row_reference import (
    make_samples,
)
from parllel.testing.vector_cage_hooks import (
    SEEDS,
    N,
    T,
    VectorCageHooks,
    clocks,
    factories_of,
    run_decorrelation,
    run_groups,
)


class VectorRulesContract(VectorCageHooks):
    """What is refused, what fails, and the environments themselves."""

    def test_a_buffer_that_does_not_fit_is_refused(self) -> None:
        with self.make([CountingEnv] * N, seeds=SEEDS, index=4) as cage:
            for env, message in (
                (CountingEnv(layout="scalar"), r"env\.observation: expected an Array"),
                (CountingEnv(layout="dict"), r"env\.observation: expected an Array"),
                (CountingEnv(action_space=spaces.MultiBinary(3)), r"agent\.action: expected"),
            ):
                with pytest.raises(ValueError, match=message):
                    cage.set_samples_buffer(make_samples(env, T, N), slice(0, N))
            samples = make_samples(CountingEnv(), T, N + 1)
            for columns in (slice(0, N + 1), slice(0, N - 1), slice(2, N + 2), slice(-1, N - 1)):
                with pytest.raises(ValueError, match=f"columns: expected {N} of the {N + 1}"):
                    cage.set_samples_buffer(samples, columns)
            with pytest.raises(TypeError, match="expected Samples"):
                cage.set_samples_buffer(samples.env, slice(0, N))
            cage.set_samples_buffer(samples, slice(1, N + 1))
            run_groups(cage, "start_reset", 0)

    def test_calls_in_a_wrong_order_change_nothing(self) -> None:
        cage, samples = self.bound([partial(CountingEnv, 9)] * N, T, seeds=SEEDS)
        with cage:
            for method in ("start_row", "start_random_row"):
                with pytest.raises(WrongStateError, match="before a reset"):
                    run_groups(cage, method, 0)
            with pytest.raises(WrongStateError, match="before a reset"):
                run_decorrelation(cage, [1] * N, 0)
            with pytest.raises(WrongStateError, match=r"finish_row\(\) without a start"):
                cage.finish_row()
            run_groups(cage, "start_reset", 0)
            cage.start_row(0)
            for method, args in (
                ("start_reset", (0,)),
                ("start_row", (0,)),
                ("start_random_row", (0,)),
                ("start_decorrelation", ([1] * N, 0)),
                ("set_samples_buffer", (samples, slice(0, N))),
                ("collect_completed_trajs", ()),
                ("collect_final_observations", ()),
                ("env_method", ("add", 1)),
                ("render", ()),
            ):
                with pytest.raises(WrongStateError, match="is not finished"):
                    getattr(cage, method)(*args)
            cage.finish_row()
            for group in range(1, len(cage.groups)):
                cage.start_row(0, group)
                cage.finish_row(group)
            assert clocks(samples, 1) == [[0, 1]] * N
            cage.start_decorrelation([1] * N, 2)
            with pytest.raises(WrongStateError, match="decorrelation is not finished"):
                cage.start_row(1)
            cage.finish_row()
            with pytest.raises(WrongStateError, match=r"finish_row\(\) without a start"):
                cage.finish_row()
            assert clocks(samples, 2) == [[0, 2]] * N
            assert [len(acted) for acted in cage.actions] == [2] * N

    @pytest.mark.parametrize("t", [-1, T + 1])
    def test_rows_outside_the_batch_are_refused(self, t: int) -> None:
        cage, samples = self.bound([partial(CountingEnv, 9)] * N, T, seeds=SEEDS)
        with cage:
            run_groups(cage, "start_reset", 0)
            for method in ("start_row", "start_random_row", "start_reset"):
                last = T if method == "start_reset" else T - 1
                with pytest.raises(IndexError, match=rf"row {t}: expected 0 to {last}"):
                    run_groups(cage, method, t)
            with pytest.raises(IndexError, match=rf"row {t}: expected 0 to {T}"):
                run_decorrelation(cage, [1] * N, t)
            run_groups(cage, "start_row", 0)
            assert clocks(samples, 1) == [[0, 1]] * N

    def test_groups_that_are_not_there_are_refused(self) -> None:
        cage, _ = self.bound([partial(CountingEnv, 9)] * N, T, seeds=SEEDS)
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
            steps = [len(acted) for acted in cage.actions]
            first = cage.groups[0]
            assert steps == [2 * (first.start <= i < first.stop) for i in range(N)]

    def test_rows_need_a_buffer(self) -> None:
        with self.make([CountingEnv] * N, seeds=SEEDS) as cage:
            for method in ("start_reset", "start_row", "start_random_row"):
                with pytest.raises(WrongStateError, match="no samples buffer was set"):
                    run_groups(cage, method, 0)
            with pytest.raises(WrongStateError, match="no samples buffer was set"):
                run_decorrelation(cage, [1] * N, 0)
            assert cage.gravity == [9.8] * N

    @pytest.mark.parametrize("phase", ["constructor", "reset", "step"])
    @pytest.mark.parametrize("column", [0, N - 1])
    def test_what_an_environment_raises_arrives_as_itself(self, column: int, phase: str) -> None:
        number = 1 if phase == "constructor" else 2
        faulty: Any = partial(FaultyEnv, phase, number=number, lengths=9)
        factories: list[Any] = [partial(CountingEnv, 9)] * N
        factories[column] = faulty
        with pytest.raises(DummyFaultError, match=f"{phase} number {number}") as caught:
            self._use(factories)
        assert caught.value.number == number
        said = notes_of(caught.value)
        assert f"in environment {4 + column}" in said
        assert ("while it was made" if phase == "constructor" else f"during {phase}") in said

    def _use(self, factories: list[Any]) -> None:
        samples = make_samples(CountingEnv(), T, N, storage=self.storage)
        with self.make(factories, samples=samples, seeds=SEEDS, index=4) as cage:
            cage.set_samples_buffer(samples, slice(0, N))
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            run_groups(cage, "start_row", 1)
            run_groups(cage, "start_reset", 0)

    def test_environments_have_the_same_spaces(self) -> None:
        factories: list[Any] = [CountingEnv] * (N - 1)
        with (
            pytest.raises(ValueError, match="its spaces differ from those of"),
            self.make([*factories, partial(CountingEnv, layout="dict")], seeds=SEEDS) as cage,
        ):
            _ = cage.spaces

    def test_attributes_and_methods_are_lists_by_column(self) -> None:
        cage, samples = self.bound(factories_of(), T, seeds=SEEDS)
        with cage:
            assert cage.n == N
            assert cage.spaces.action == spaces.Discrete(4)
            assert cage.lengths == [(3, 1, 4, 7), (1,), (20,), (2, 6), (5, 5, 1)]
            assert cage.env_method("add", 1, right=2) == [3] * N
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            assert [int(picture.max()) for picture in cage.render()] == [1, 0, 1, 1, 1]
            cage.gravity = 3.0
            assert cage.gravity == [3.0] * N
            cage.gravity = np.arange(3.0)
            np.testing.assert_array_equal(cage.gravity, np.tile(np.arange(3.0), (N, 1)))
            with pytest.raises(
                AttributeError, match=r"an attribute 'gravitiy' to set; near names: .*'gravity'"
            ):
                cage.gravitiy = 3.0
            with pytest.raises(ValueError, match="asked to"):
                cage.env_method("fail")
            for name in ("weight", "_weight"):
                with pytest.raises(AttributeError, match=name):
                    getattr(cage, name)
            run_groups(cage, "start_row", 1)
            assert clocks(samples, 2)[2] == [0, 2]

    def test_closing_is_final(self) -> None:
        cage, samples = self.bound([CountingEnv] * N, T, seeds=SEEDS)
        run_groups(cage, "start_reset", 0)
        cage.close()
        cage.close()
        for method, args in (
            ("start_reset", (0,)),
            ("start_row", (0,)),
            ("start_random_row", (0,)),
            ("start_decorrelation", ([1] * N, 0)),
            ("finish_row", ()),
            ("set_samples_buffer", (samples, slice(0, N))),
            ("collect_completed_trajs", ()),
            ("collect_final_observations", ()),
            ("env_method", ("add", 1)),
            ("render", ()),
        ):
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                getattr(cage, method)(*args)
        with pytest.raises(ClosedError, match=r"used after close\(\)"):
            _ = cage.gravity
        assert (cage.n, cage.groups[-1].stop) == (N, N)
        assert clocks(samples, 0) == [[0, 0]] * N

    def test_closing_while_something_is_under_way(self) -> None:
        for method, args in (("start_reset", (0,)), ("start_decorrelation", ([3] * N, 0))):
            cage, _ = self.bound([CountingEnv] * N, T, seeds=SEEDS)
            run_groups(cage, "start_reset", 0)
            getattr(cage, method)(*args)
            cage.close()
            with pytest.raises(ClosedError, match=r"used after close\(\)"):
                cage.finish_row()
