"""Contract of samplers: inherit it and define `make_sampler`, and pytest collects the tests.

    class TestMySampler(SamplerContract):
        def make_sampler(self, setup):
            return make_sampler(MySampler, setup)

`make_sampler` passes the arguments that BasicSampler takes. Environments must be reset within the step that
ends their episode. `simulate` computes the expected batches, without using any sampler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.cages.traj_info import TrajInfo
from parllel.samplers.sampler import Sampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_transforms import RecordingBatchTransform, RecordingStepTransform
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.testing.sampler_setup import SamplerSetup
from parllel.testing.simulated_batches import SimulatedBatch, simulate

# Lengths that end at all places of a batch: within, with it, with none in it, several times in it.
ENVIRONMENTS = (
    partial(CountingEnv, lengths=(3, 5), end="alternate"),
    partial(CountingEnv, lengths=4, end="truncated"),
    partial(CountingEnv, lengths=(1, 2, 11), end="terminated"),
    partial(CountingEnv, lengths=2, end="both"),
)
DOUBLED = partial(RecordingStepTransform, "doubled", target="agent.doubled", scale=2.0)
SHIFTED = partial(RecordingStepTransform, "shifted", source="agent.doubled", shift=0.5, drift=3.0)
SCALED = partial(RecordingBatchTransform, "scaled", scale=-2.0)
LOWERED = partial(
    RecordingBatchTransform,
    "lowered",
    source="env.scaled_reward",
    target="env.lowered_reward",
    shift=-1.0,
)


class SamplerContract:
    """Tests of a sampler; override `adapt` to choose cages and storage.

    Attributes:
        fewest: lowest number of environments that the sampler supports.
    """

    fewest = 1

    def make_sampler(self, setup: SamplerSetup) -> Any:
        """Return a fresh sampler of the class under test, built from `setup`."""
        raise NotImplementedError(
            f"{type(self).__name__} must define make_sampler() to create a sampler"
        )

    def adapt(self, setup: SamplerSetup) -> SamplerSetup:
        """Return the setup with other cages or another storage."""
        return setup

    def simulate(self, setup: SamplerSetup, n_batches: int) -> list[SimulatedBatch]:
        """Return the expected batches of the setup."""
        return simulate(setup, n_batches)

    @contextmanager
    def sampler(self, setup: SamplerSetup) -> Iterator[Sampler]:
        """Make a sampler and close it."""
        sampler = self.make_sampler(self.adapt(setup))
        try:
            yield sampler
        finally:
            sampler.close()

    def check(self, setup: SamplerSetup, n_batches: int) -> None:
        """Compare some batches, all fields and episodes, with those of a plain loop."""
        with self.sampler(setup) as sampler:
            check_batches(sampler, self.simulate(setup, n_batches))

    def test_batches_are_those_of_a_plain_loop(self) -> None:
        # 24 rows, more than the longest round of episodes takes (1 + 2 + 11 steps).
        self.check(SamplerSetup(4, ENVIRONMENTS), 6)

    def test_batches_of_one_row(self) -> None:
        # The first row is the last one too, so all that is done before or after other rows falls together.
        self.check(SamplerSetup(1, ENVIRONMENTS[:2]), 9)

    def test_batches_of_the_fewest_environments(self) -> None:
        self.check(SamplerSetup(7, ENVIRONMENTS[: self.fewest], seed=5), 3)

    def test_nested_observations(self) -> None:
        # Trees take ways of their own through buffers, transforms and final observations.
        factories = tuple(partial(make, layout="dict") for make in ENVIRONMENTS)
        self.check(SamplerSetup(5, factories, step_transforms=(DOUBLED, SHIFTED)), 3)

    def test_environments_that_reuse_their_arrays(self) -> None:
        # An observation that is kept without a copy holds the numbers of a later step.
        factories = tuple(partial(make, reuse=True) for make in ENVIRONMENTS)
        self.check(SamplerSetup(5, factories), 3)

    def test_transforms_are_applied_in_order_and_once(self) -> None:
        # Neither pair commutes. The row after a batch is the first of the next: it must come from raw data,
        # by the statistics of the batch that it is read in.
        setup = SamplerSetup(
            3, ENVIRONMENTS, step_transforms=(DOUBLED, SHIFTED), batch_transforms=(SCALED, LOWERED)
        )
        self.check(setup, 5)

    def test_statistics_move_between_batches(self) -> None:
        setup = SamplerSetup(3, ENVIRONMENTS, step_transforms=(DOUBLED, SHIFTED))
        with self.sampler(setup) as sampler:
            for batch in range(3):
                # Statistics that move while a batch is sampled would give its rows different scales.
                assert sampler.stats == {"RecordingStepTransform/batches": batch}
                sampler.collect_batch(batch * setup.batch_spec.size)

    def test_equal_seeds_give_equal_samples(self) -> None:
        setup = SamplerSetup(4, ENVIRONMENTS, seed=1)
        marks = []
        # A run with the seed of another must repeat it, also after others in the same process.
        for seed in (1, 1, 2):
            with self.sampler(replace(setup, seed=seed)) as sampler:
                samples, _ = sampler.collect_batch(0)
                marks.append(np.array(samples.env.observation))
        np.testing.assert_array_equal(marks[0], marks[1])
        assert (marks[0][0, :, 0] != marks[2][0, :, 0]).all()
        assert len(set(marks[0][0, :, 0])) == len(ENVIRONMENTS)  # all seeded differently

    def test_state_holds_that_of_the_transforms(self) -> None:
        setup = SamplerSetup(3, ENVIRONMENTS, step_transforms=(DOUBLED, SHIFTED))
        with self.sampler(setup) as sampler:
            for batch in range(2):
                sampler.collect_batch(batch)
            state = sampler.state()
        with self.sampler(setup) as sampler:
            sampler.load_state(state)
            assert sampler.stats == {"RecordingStepTransform/batches": 2}

    def test_another_sampler_goes_on_from_its_state(self) -> None:
        transforms: Any = {
            "step_transforms": (DOUBLED, SHIFTED),
            "batch_transforms": (SCALED, LOWERED),
        }
        self.check_resumed(SamplerSetup(3, ENVIRONMENTS, **transforms))

    def check_resumed(self, setup: SamplerSetup) -> None:
        """Compare batches of a sampler that got the state of another with those of a plain loop.

        Both need `handler.agent`.
        """
        batches = self.simulate(setup, 5)
        sampler: Any
        with self.sampler(setup) as sampler:
            for batch in range(3):
                sampler.collect_batch(batch)
            state, agent = sampler.state(), sampler.handler.agent.state()
            # A state without the environments would be accepted too, and begin new episodes.
            assert sampler.unsaved_environments == {}
        # Another seed, so that nothing is right because it would have been anyway.
        with self.sampler(replace(setup, seed=setup.seed + 1)) as sampler:
            sampler.load_state(state)
            sampler.handler.agent.load_state(agent)
            check_batches(sampler, batches[3:])

    def test_state_of_other_transforms_is_refused(self) -> None:
        import pytest

        setup = SamplerSetup(3, ENVIRONMENTS, step_transforms=(DOUBLED, SHIFTED))
        with self.sampler(setup) as sampler:
            state = sampler.state()
        with (
            self.sampler(SamplerSetup(3, ENVIRONMENTS)) as sampler,
            pytest.raises(ValueError, match=r"transforms: expected the states of \[\], got those"),
        ):
            sampler.load_state(state)

    def test_close_may_be_called_twice(self) -> None:
        sampler = self.make_sampler(self.adapt(SamplerSetup(2, ENVIRONMENTS)))
        with sampler as entered:
            assert entered is sampler
            sampler.collect_batch(0)
        sampler.close()

    def test_an_environment_that_raises_leaves_the_rest_closable(self) -> None:
        import pytest

        # In the first column and in the last: the others may not have started, or be in the middle of a step.
        for position in (0, 2):
            factories: list[Any] = list(ENVIRONMENTS[:3])
            factories[position] = partial(FaultyEnv, "step", number=6, lengths=20)
            with self.sampler(SamplerSetup(4, tuple(factories))) as sampler:
                sampler.collect_batch(0)
                with pytest.raises(DummyFaultError, match="step number 6 failed"):
                    sampler.collect_batch(12)


def check_batches(sampler: Sampler, expected: Sequence[SimulatedBatch]) -> None:
    """Compare the next batches of a sampler, all fields and episodes."""
    elapsed_steps = 0
    for batch in expected:
        samples, trajs = sampler.collect_batch(elapsed_steps)
        elapsed_steps += sampler.count_steps(samples)
        check_samples(samples, batch)
        check_trajs(trajs, batch)


def check_samples(samples: Samples, expected: SimulatedBatch) -> None:
    """Compare all fields of a batch, and the rows after it where they count."""
    leaves = dict(buffer_leaves(samples))
    # None may be missing from the simulation: a field that nothing writes would go unnoticed.
    assert set(leaves) == set(expected.fields)
    for path, leaf in leaves.items():
        wanted = expected.fields[path]
        T = len(leaf)
        assert leaf.dtype == wanted.dtype, f"{path}: dtype"
        np.testing.assert_array_equal(np.asarray(leaf), wanted[:T], err_msg=path)
        if len(wanted) > T:
            after = np.asarray(leaf[leaf.last + 1])
            np.testing.assert_array_equal(after, wanted[T], err_msg=f"{path}, row T")


def check_trajs(trajs: Sequence[TrajInfo], expected: SimulatedBatch) -> None:
    """Compare the episodes that ended in a batch, whatever their order."""
    wanted: list[Any] = [traj for column in expected.trajs for traj in column]
    found = [(traj.length, traj.return_, traj.discounted_return) for traj in trajs]
    # Sorted, as it depends on processes and groups which episode is reported first.
    np.testing.assert_allclose(sorted(found), sorted(wanted), rtol=1e-12)
