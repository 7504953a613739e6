"""Samplers look up the steps of agent and cage once a batch; methods that are overridden run in every row."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from parllel.agents import NumpyHandler
from parllel.buffers import buffer_leaves
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.errors import ClosedError, WrongStateError
from parllel.samplers import AlternatingSampler, BasicSampler, RecurrentSampler
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.types import BatchSpec, overrides
from parllel_patterns import allocate_samples

T, B = 5, 4
FACTORIES = [partial(CountingEnv, lengths=3 + i, end="truncated") for i in range(B)]


def sampler_of(Sampler, *, cage=VectorizedCage, handler=NumpyHandler, agent=None, **options):
    """Return a sampler of B environments, in two cages so that it can alternate."""
    cages = [
        cage(
            FACTORIES[half], seeds=range(B)[half], reset_automatically=Sampler.resets_automatically
        )
        for half in (slice(0, 2), slice(2, B))
    ]
    handler = handler(agent or CountingAgent(2))
    samples = allocate_samples(cages, BatchSpec(T, B), handler, **options)
    return Sampler(BatchSpec(T, B), cages, handler, samples)


def batches(sampler, n=3):
    """Return the values of all leaves after each batch, and the episodes."""
    found = []
    with sampler:
        for _ in range(n):
            samples, trajs = sampler.collect_batch(0)
            leaves = {name: np.array(leaf) for name, leaf in buffer_leaves(samples)}
            found.append((leaves, [traj.as_dict() for traj in trajs]))
    return found


def check_equal(found, expected):
    for (leaves, trajs), (other, others) in zip(found, expected, strict=True):
        assert leaves.keys() == other.keys()
        for name, leaf in leaves.items():
            np.testing.assert_array_equal(leaf, other[name], err_msg=name)
        assert trajs == others


class CountedHandler(NumpyHandler):
    """Count the calls of `step`."""

    calls = 0

    def step(self, t, columns):
        self.calls += 1
        super().step(t, columns)


class CountedCage(VectorizedCage):
    """Count the calls of `start_row` and `finish_row`."""

    def start_row(self, t, group=0):
        self._calls = vars(self).get("_calls", 0) + 1
        super().start_row(t, group)

    def finish_row(self, group=0):
        self._calls = vars(self).get("_calls", 0) + 1
        super().finish_row(group)


@pytest.mark.parametrize("Sampler", [BasicSampler, AlternatingSampler, RecurrentSampler])
def test_methods_that_a_class_overrides_are_called_in_every_row(Sampler):
    class CountedSampler(Sampler):
        acts = 0

        def act(self, t, columns):
            self.acts += 1
            super().act(t, columns)

    sampler = sampler_of(CountedSampler, cage=CountedCage, handler=CountedHandler)
    with sampler:
        sampler.collect_batch(0)
        rows = int(np.asarray(sampler.samples.env.done).shape[0])
        if not Sampler.resets_automatically:  # ends when the last environment waits
            rows = int(np.asarray(sampler.samples.env.valid).any(axis=1).sum())
        each = 2 if Sampler is AlternatingSampler else 1
        assert sampler.acts == sampler.handler.calls == rows * each
        # A row is started and finished, and the first reset is finished too.
        assert [cage._calls for cage in sampler.cages.cages] == [2 * rows + 1] * 2
    plain = batches(sampler_of(Sampler, cage=CountedCage, handler=CountedHandler))
    check_equal(batches(sampler_of(Sampler)), plain)


def test_a_method_that_an_object_overrides_is_called_in_every_row():
    sampler = sampler_of(BasicSampler)
    cage, rows = sampler.cages.cages[0], []
    start_row = cage.start_row
    object.__setattr__(cage, "start_row", lambda t, group=0: (rows.append(t), start_row(t, group)))
    with sampler:
        sampler.collect_batch(0)
        rows.clear()
        cage.bound_step()(2)
    assert rows == [2]


@pytest.mark.parametrize("whole", [True, False], ids=["timed", "plain"])
def test_a_timed_batch_is_the_same(whole):
    sampler = sampler_of(BasicSampler)
    with sampler:
        collect = sampler.collect_timed_batch if whole else sampler.collect_batch
        found = [np.array(collect(0)[0].agent.action) for _ in range(3)]
    expected = [leaves["agent.action"] for leaves, _ in batches(sampler_of(BasicSampler))]
    np.testing.assert_array_equal(found, expected)


class Meddling(CountingAgent):
    """Call a function in row 3 of the second batch."""

    meddle = None
    row = 0

    def step(self, observation, **inputs):
        self.row += 1
        if self.row == T + 4:
            self.meddle()
        return super().step(observation, **inputs)


@pytest.mark.parametrize(
    ("meddle", "error", "message"),
    [
        (lambda cage: cage.close(), ClosedError, r"used after close"),
        (
            lambda cage: cage.start_random_row(3),
            WrongStateError,
            r"start_row: random step at row 3 is not finished",
        ),
    ],
    ids=["closed", "in progress"],
)
def test_a_cage_is_checked_in_every_row(meddle, error, message):
    agent = Meddling(2)
    cage = VectorizedCage(FACTORIES, seeds=range(B))
    handler = NumpyHandler(agent)
    samples = allocate_samples([cage], BatchSpec(T, B), handler)
    agent.meddle = partial(meddle, cage)
    with BasicSampler(BatchSpec(T, B), [cage], handler, samples) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(error, match=message):
            sampler.collect_batch(0)
        with pytest.raises(WrongStateError, match="an error ended the last batch halfway"):
            sampler.collect_batch(0)


def ended_rows(cage, **options):
    """Step T rows; return the rows and flags of all final observations, and what is left to collect."""
    samples = allocate_samples([cage], BatchSpec(T, cage.n), NumpyHandler(CountingAgent(2)))
    cage.set_samples_buffer(samples, slice(0, cage.n))
    cage.start_reset()
    cage.finish_row()
    step = cage.bound_step(**options)
    for t in range(T):
        step(t)
    found = [(one.row, one.column, one.truncated) for one in cage.collect_final_observations()]
    assert cage.collect_final_observations() == []
    return found


ENDS = [partial(CountingEnv, lengths=2, end=end) for end in ("terminated", "truncated", "both")]


def test_only_truncated_observations_are_kept_for_a_caller_that_asks_for_no_others():
    def expected(columns):
        return [(t, b, b > 0) for t in (1, 3) for b in columns]

    assert ended_rows(VectorizedCage(ENDS)) == expected([0, 1, 2])
    assert ended_rows(VectorizedCage(ENDS), truncated_only=True) == expected([1, 2])
    # Without automatic resets each ends once.
    waiting = VectorizedCage(ENDS, reset_automatically=False)
    found = ended_rows(waiting, truncated_only=True)
    assert [one for one in found if one[2]] == [(1, 1, True), (1, 2, True)]


def test_all_final_observations_are_kept_for_those_who_may_ask_for_them():
    class Curious(VectorizedCage):
        def collect_final_observations(self, *, truncated_only=False):
            return super().collect_final_observations()

    assert len(ended_rows(Curious(ENDS), truncated_only=True)) == 6

    class CuriousSampler(BasicSampler):
        def finish(self):
            self.seen = self.cages.final_observations(truncated_only=False)
            return super().finish()

    cage = VectorizedCage(ENDS)
    handler = NumpyHandler(CountingAgent(2))
    samples = allocate_samples([cage], BatchSpec(T, 3), handler)
    with CuriousSampler(BatchSpec(T, 3), [cage], handler, samples) as sampler:
        sampler.collect_batch(0)
        assert [(one.row, one.column) for one in sampler.seen] == [
            (t, b) for t in (1, 3) for b in range(3)
        ]


@pytest.mark.parametrize("end", ["terminated", "truncated", "both", "alternate"])
@pytest.mark.parametrize("reuse", [True, False])
def test_batches_with_ends_of_all_kinds_are_those_of_plain_rows(end, reuse):
    factories = [partial(CountingEnv, lengths=(2 + i, 3), end=end, reuse=reuse) for i in range(B)]
    found = []
    for kind in (VectorizedCage, CountedCage):
        cage = kind(factories, seeds=range(B))
        handler = NumpyHandler(CountingAgent(2))
        samples = allocate_samples([cage], BatchSpec(T, B), handler)
        found.append(batches(BasicSampler(BatchSpec(T, B), [cage], handler, samples)))
    check_equal(*found)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_environment_whose_reset_failed_still_needs_one(error):
    class Fails(CountingEnv):
        resets = 0

        def reset(self, **options):
            self.resets += 1
            if self.resets == 3:
                raise error("no")
            return super().reset(**options)

    cage = VectorizedCage([partial(Fails, lengths=2), partial(CountingEnv, lengths=3)])
    with pytest.raises(error):
        ended_rows(cage, truncated_only=True)
    # Row 3, in which the second episode of environment 0 ended; the other one was not stepped then.
    assert cage.needs_reset.tolist() == [True, False]
    assert [traj.length for traj in cage.collect_completed_trajs()] == (
        [2, 2, 3] if error is RuntimeError else [2, 3]
    )


@pytest.mark.parametrize("t", [-1, T])
def test_rows_outside_of_the_batch_are_refused(t):
    with sampler_of(BasicSampler) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(IndexError):
            sampler.cages.cages[0].bound_step()(t)


def test_the_steps_of_a_batch_write_to_that_batch():
    sampler = sampler_of(BasicSampler, n_batches=2)
    expected = batches(sampler_of(BasicSampler), 4)
    check_equal(batches(sampler, 4), expected)


class CountedWorkers(SynchronizedProcessCage):
    """Count the calls of `start_row` and `finish_row`."""

    def start_row(self, t, group=0):
        self._calls = vars(self).get("_calls", 0) + 1
        super().start_row(t, group)

    def finish_row(self, group=0):
        self._calls = vars(self).get("_calls", 0) + 1
        super().finish_row(group)


@pytest.mark.parametrize("Sampler", [BasicSampler, RecurrentSampler])
@pytest.mark.parametrize("options", [{"participate": True}, {"n_groups": 2, "n_main": 1}, {}])
@pytest.mark.few(2)
def test_rows_over_workers_are_those_of_one_process(Sampler, options):
    def sampler_over(kind, **more):
        automatic = {"reset_automatically": Sampler.resets_automatically}
        cage = kind(FACTORIES, seeds=range(B), **automatic, **more)
        handler = NumpyHandler(CountingAgent(2))
        samples = allocate_samples([cage], BatchSpec(T, B), handler, n_batches=2)
        return Sampler(BatchSpec(T, B), [cage], handler, samples)

    expected = batches(sampler_over(VectorizedCage), 4)
    more = {"n_workers": 1, "participate": "n_main" in options, **options}
    for kind in (SynchronizedProcessCage, CountedWorkers):
        sampler = sampler_over(kind, **more)
        check_equal(batches(sampler, 4), expected)
    assert vars(sampler.cages.cages[0])["_calls"] > 2 * T  # they were called for the rows, too


@pytest.fixture
def over_workers():
    """Yield a cage over a worker and this process, bound and reset."""
    with SynchronizedProcessCage(FACTORIES, n_workers=1, participate=True, seeds=range(B)) as cage:
        samples = allocate_samples([cage], BatchSpec(T, B), NumpyHandler(CountingAgent(2)))
        cage.set_samples_buffer(samples, slice(0, B))
        cage.start_reset()
        cage.finish_row()
        yield cage


def test_bound_rows_over_workers_are_refused_as_others_are(over_workers):
    cage = over_workers
    step = cage.bound_step()
    for t in (-1, T):
        with pytest.raises(IndexError, match=f"row {t}: expected"):
            step(t)
    with pytest.raises(IndexError, match="group"):
        cage.bound_step(1)(0)
    cage.start_row(0)
    with pytest.raises(WrongStateError, match="step at row 0 is not finished"):
        step(1)
    cage.finish_row()
    step(1)
    cage.close()
    with pytest.raises(ClosedError, match="used after close"):
        step(2)


class Failing(CountingEnv):
    """Raise an exception in step 3."""

    error = RuntimeError

    def step(self, action):
        if self._step == 2:
            raise self.error("no")
        return super().step(action)


class Stopped(Failing):
    """Be stopped by Ctrl-C in step 3."""

    error = KeyboardInterrupt


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "plain"])
@pytest.mark.parametrize(
    ("kind", "place"),
    [(Failing, 0), (Failing, 3), (Stopped, 3)],
    ids=["in worker", "in main", "Ctrl-C in main"],
)
def test_errors_of_bound_rows_over_workers_are_those_of_plain_rows(bound, place, kind):
    factories = [CountingEnv] * B
    factories[place] = kind
    cage = SynchronizedProcessCage(factories, n_workers=1, participate=True, seeds=range(B))
    samples = allocate_samples([cage], BatchSpec(T, B), NumpyHandler(CountingAgent(2)))
    cage.set_samples_buffer(samples, slice(0, B))
    cage.start_reset()
    cage.finish_row()

    def plain(t):
        cage.start_row(t)
        cage.finish_row()

    step = cage.bound_step() if bound else plain
    reward = np.asarray(samples.env.reward)
    reward[2] = 7
    step(0)
    step(1)
    with pytest.raises(kind.error, match="no") as error:
        step(2)
    if kind is Failing:
        assert any(f"in environment {place} (" in note for note in error.value.__notes__)
        assert np.isnan(reward[2, place]) or reward[2, place] == 7
    with pytest.raises(ClosedError):
        step(2)
    cage.close()


def test_a_bound_row_that_ctrl_c_interrupts_can_be_finished(over_workers):
    cage = over_workers
    step = cage.bound_step()
    step(0)
    (wait_each,), calls = cage._rows._wait_each, []

    def interrupted(number):
        calls.append(number)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return wait_each(number)

    cage._rows._wait_each = [interrupted]
    step = cage.bound_step()
    with pytest.raises(KeyboardInterrupt):
        step(1)
    # This process's own share is not stepped again.
    cage.finish_row()
    step(2)
    assert [len(actions) for actions in cage.env_method("get_wrapper_attr", "actions")] == [3] * B


def test_values_are_cast_within_a_kind_of_number():
    view = np.zeros(3, np.int32)
    NumpyHandler.write(view, np.array([1, 2, 3]))  # int64
    assert view.tolist() == [1, 2, 3]
    NumpyHandler.write(view, np.array([4, 5, 6], np.int32))
    assert view.tolist() == [4, 5, 6]
    with pytest.raises(TypeError, match="Cannot cast"):
        NumpyHandler.write(view, np.array([0.5, 1.0, 2.0]))
    assert view.tolist() == [4, 5, 6]


def test_overrides_of_classes_and_of_objects():
    class Base:
        def one(self):
            pass

        def two(self):
            pass

    class Mine(Base):
        def two(self):
            pass

    assert not overrides(Base(), Base, "one", "two")
    assert overrides(Mine(), Base, "two")
    assert not overrides(Mine(), Base, "one")
    mine = Mine()
    mine.one = len
    assert overrides(mine, Base, "one")
