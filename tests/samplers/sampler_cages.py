"""A cage with groups in this process, and the cages that samplers are tested with."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from parllel.cages import (
    Cage,
    CageInterface,
    ProcessCage,
    SynchronizedProcessCage,
    VectorEnvFactory,
    VectorizedCage,
)
from parllel.samplers import AlternatingSampler, BasicSampler
from parllel.testing.sampler_contract import SamplerContract
from parllel.testing.sampler_setup import MakeCages


class GroupedCage(CageInterface):
    """A VectorizedCage for each group; they step when they are started or, if `late`, when finished.

    What is early shows a sampler that still writes after a start; what is late, one that reads too soon.
    """

    def __init__(
        self, env_factories, *, n_groups, late=False, seeds, index=0, buffers=None, **options
    ):
        n = len(env_factories)
        ends = [n * number // n_groups for number in range(n_groups + 1)]
        self._groups = [slice(*pair) for pair in pairwise(ends)]
        self._parts = [
            VectorizedCage(
                env_factories[group], seeds=seeds[group], index=index + group.start, **options
            )
            for group in self._groups
        ]
        self._late = late
        self._waiting = {}

    @property
    def n(self):
        return self._groups[-1].stop

    @property
    def groups(self):
        return self._groups

    @property
    def spaces(self):
        return self._parts[0].spaces

    @property
    def needs_reset(self):
        return [flag for part in self._parts for flag in part.needs_reset]

    @property
    def reset_automatically(self):
        return self._parts[0].reset_automatically

    def set_samples_buffer(self, samples, columns):
        for part, group in zip(self._parts, self._groups, strict=True):
            own = slice(columns.start + group.start, columns.start + group.stop)
            part.set_samples_buffer(samples, own)

    def _start(self, group, start):
        assert group not in self._waiting
        self._waiting[group] = start
        if not self._late:
            start()

    def start_reset(self, t=0, *, all_envs=True, group=0):
        self._start(group, partial(self._parts[group].start_reset, t, all_envs=all_envs))

    def start_row(self, t, group=0):
        self._start(group, partial(self._parts[group].start_row, t))

    def start_random_row(self, t, group=0):
        self._start(group, partial(self._parts[group].start_random_row, t))

    def start_decorrelation(self, counts, t=0):
        assert not self._waiting
        assert len(counts) == self.n
        for part, group in zip(self._parts, self._groups, strict=True):
            part.start_decorrelation(counts[group], t)
        self._waiting["all"] = None

    def finish_row(self, group=0):
        if "all" in self._waiting:
            assert group == 0
            self._waiting.clear()
            for part in self._parts:
                part.finish_row()
            return
        start = self._waiting.pop(group)
        if self._late:
            start()
        self._parts[group].finish_row()

    def collect_completed_trajs(self):
        assert not self._waiting
        return [traj for part in self._parts for traj in part.collect_completed_trajs()]

    def collect_final_observations(self, *, truncated_only=False):
        assert not self._waiting
        return [
            final
            for part in self._parts
            for final in part.collect_final_observations(truncated_only=truncated_only)
        ]

    def environment_states(self):
        assert not self._waiting
        return [state for part in self._parts for state in part.environment_states()]

    def load_environment_states(self, states, salt):
        assert not self._waiting
        for part, group in zip(self._parts, self._groups, strict=True):
            part.load_environment_states(states[group], salt)

    def env_method(self, name, *args, **kwargs):
        return [value for part in self._parts for value in part.env_method(name, *args, **kwargs)]

    def render(self):
        return self.env_method("render")

    def close(self):
        for part in self._parts:
            part.close()


def vectorized(factories, buffers=None, **options):
    """Make a VectorizedCage, which needs no buffers beforehand."""
    return VectorizedCage(factories, **options)


def native(mode):
    """Return what makes a VectorizedCage of one native vector environment, in an autoreset mode."""

    def make(factories, buffers=None, **options):
        together = VectorEnvFactory(lambda n: SyncVectorEnv(factories, autoreset_mode=mode))
        return VectorizedCage(together, **options)

    return make


def grouped(n_groups, late=False):
    """Return what makes a GroupedCage of at most so many groups."""

    def make(factories, **options):
        groups = min(n_groups, len(factories))
        return GroupedCage(factories, n_groups=groups, late=late, **options)

    return make


def synchronized(n_workers, n_groups=1, participate=False, start_method="fork"):
    """Return what makes a SynchronizedProcessCage, of no more workers and groups than environments."""

    def make(factories, **options):
        n = len(factories)
        return SynchronizedProcessCage(
            factories,
            n_workers=max(1, min(n_workers, n - participate)),
            n_groups=min(n_groups, n),
            participate=participate and n > 1,
            start_method=start_method,
            **options,
        )

    return make


def in_cages_of(most):
    """Return a `make_cages` of VectorizedCages of so many environments, the last of what is left."""

    def make_cages(factories, seeds, **options):
        n = len(factories)
        most_here = min(most, n - 1)  # two cages there have to be
        sizes = [most_here] * (n // most_here)
        sizes += [n % most_here] if n % most_here else []
        return MakeCages(vectorized, tuple(sizes))(factories, seeds, **options)

    return make_cages


def several(make, sizes=None):
    """Return what a setup has to say for cages of several environments each."""
    return {"make_cages": MakeCages(make, sizes)}


def with_cages(setup, make, sizes=None):
    return replace(setup, **several(make, sizes))


FORKED = {"make_cage": ProcessCage, "cage_options": {"start_method": "fork"}}
SAMPLERS = [BasicSampler, AlternatingSampler]
SINGLE = {"make_cage": Cage}
CAGES = {
    "Cage": SINGLE,
    "ProcessCage": FORKED,
    "VectorizedCage": {"make_cages": in_cages_of(3)},
    "groups": several(grouped(2)),
    "SynchronizedProcessCage": several(synchronized(2, 2)),
    "with main": several(synchronized(1, 2, participate=True)),
}


def assert_same(found, expected):
    """Compare what `numbers_of` has returned."""
    assert found.keys() == expected.keys()
    for path, numbers in expected.items():
        np.testing.assert_array_equal(found[path], numbers, err_msg=path)


def one_of(places):
    """Return a fixture that puts the cages and the storage of each place into `self.place`."""

    @pytest.fixture(autouse=True, params=places.values(), ids=places.keys())
    def choose_place(self, request):
        self.place = request.param

    return choose_place


class PlacedContract(SamplerContract):
    """The contract with other cages or another storage, `place`."""

    place = {}

    def adapt(self, setup):
        return replace(setup, **self.place)
