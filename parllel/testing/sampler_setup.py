"""The parts of a sampler under test, as one picklable description."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.agents.examples import agent_examples, initial_state_example
from parllel.agents.handler import Handler
from parllel.agents.numpy_handler import NumpyHandler
from parllel.arrays.arena import Storage
from parllel.buffers.allocation import Field, add_fields, allocate, insert_field
from parllel.buffers.samples import AgentSamples, EnvSamples, Samples
from parllel.buffers.tree import buffer_map
from parllel.cages.cage import Cage
from parllel.cages.cage_interface import CageInterface
from parllel.cages.spaces import Spaces, stored_example
from parllel.cages.traj_info import TrajInfo
from parllel.testing.dummy_agents import CountingAgent, RecurrentCountingAgent
from parllel.testing.dummy_transforms import RecordingBatchTransform, RecordingStepTransform
from parllel.transforms.field_allocation import add_transform_fields
from parllel.types import BatchSpec

# A power of two: with rewards in eighths, discounted sums are exact in any order.
DISCOUNT = 0.5


class DiscountedTrajInfo(TrajInfo):
    """TrajInfo with a discount of `DISCOUNT`."""

    def __init__(self) -> None:
        super().__init__(DISCOUNT)


@dataclass
class SamplerParts:
    """Constructor arguments of a sampler."""

    batch_spec: BatchSpec
    cages: list[CageInterface]
    handler: Handler
    samples: Samples
    step_transforms: list[RecordingStepTransform]
    batch_transforms: list[RecordingBatchTransform]

    def sampler(self, cls: Callable[..., Any], **changes: Any) -> Any:
        """Build a sampler of a class, with some arguments changed or added."""
        return cls(**{**vars(self), **changes})

    def close(self) -> None:
        """Close the cages."""
        for cage in self.cages:
            cage.close()


@dataclass(frozen=True)
class MakeCages:
    """Factory of cages with several environments each, as `make_cages` of `SamplerSetup`.

    Attributes:
        make: a class of cages, or a function; called with a list of factories, `seeds`, `traj_info`, `index`,
            the `cage_options`, and for shared storage `buffers`.
        sizes: environments of each cage; None puts all into one.
    """

    make: Callable[..., CageInterface]
    sizes: tuple[int, ...] | None = None

    def __call__(
        self,
        factories: Sequence[Callable[[], Any]],
        seeds: Sequence[np.random.SeedSequence],
        **options: Any,
    ) -> list[CageInterface]:
        """Make the cages; if one cannot be made, those before it are closed."""
        sizes = (len(factories),) if self.sizes is None else self.sizes
        if sum(sizes) != len(factories):
            raise ValueError(f"sizes: expected {len(factories)} environments together, got {sizes}")
        with contextlib.ExitStack() as stack:
            cages: list[CageInterface] = []
            first = 0
            for size in sizes:
                part = slice(first, first + size)
                cage = self.make(list(factories[part]), seeds=seeds[part], index=first, **options)
                stack.callback(cage.close)
                cages.append(cage)
                first += size
            # All are made: from here on they are the caller's to close.
            stack.pop_all()
        return cages


@dataclass(frozen=True)
class SamplerSetup:
    """Description of a sampling setup: `build` creates its parts, `simulate` computes the expected batches.

    Attributes:
        T: rows of a batch.
        factories: make the environments, one per column; they give "step" and "half" in their info, and have
            Discrete actions, as `CountingEnv` does.
        seed: of environments, agent and decorrelation.
        step_transforms, batch_transforms: functions without arguments that make them.
        storage: of the buffer.
        make_cage: the class of the cages, or a function with its arguments, if there is one for each
            environment.
        make_cages: makes them otherwise, of all factories and their seeds; see `MakeCages`.
        cage_options: further arguments of either.
        switching: allocate arrays with two sides.
        batches: how many batches the buffer holds before it starts again.
        recurrent: with a RecurrentCountingAgent and environments that wait to be reset.
    """

    T: int
    factories: tuple[Callable[[], gym.Env[Any, Any]], ...]
    seed: int = 0
    step_transforms: tuple[Callable[[], RecordingStepTransform], ...] = ()
    batch_transforms: tuple[Callable[[], RecordingBatchTransform], ...] = ()
    storage: Storage = "local"
    make_cage: Callable[..., CageInterface] = Cage
    make_cages: Callable[..., list[CageInterface]] | None = None
    cage_options: Mapping[str, Any] = field(default_factory=dict)
    switching: bool = False
    batches: int = 1
    recurrent: bool = False

    @property
    def batch_spec(self) -> BatchSpec:
        """T, and one column per factory."""
        return BatchSpec(self.T, len(self.factories))

    def spaces(self) -> Spaces:
        """Return the spaces of the environments."""
        env = self.factories[0]()
        env.close()
        return Spaces(env.observation_space, env.action_space, "probe")

    def cage_seeds(self) -> list[np.random.SeedSequence]:
        """Return the seeds of the cages."""
        return np.random.SeedSequence(self.seed).spawn(len(self.factories))

    def agent(self) -> CountingAgent:
        """Return a fresh agent."""
        n_actions = int(self.spaces().action.n)  # type: ignore[attr-defined]
        if self.recurrent:
            return RecurrentCountingAgent(n_actions, self.seed, n_envs=len(self.factories))
        return CountingAgent(n_actions, self.seed)

    def build(self) -> SamplerParts:
        """Make the parts; the caller closes the cages."""
        handler = NumpyHandler(self.agent())
        steps = [make() for make in self.step_transforms]
        batches = [make() for make in self.batch_transforms]
        samples = self._allocate(handler, [*steps, *batches])
        return SamplerParts(self.batch_spec, self.cages(samples), handler, samples, steps, batches)

    def cages(self, samples: Samples) -> list[CageInterface]:
        """Make the cages; those of shared storage get the buffer at their start."""
        options: dict[str, Any] = {"traj_info": DiscountedTrajInfo, **self.cage_options}
        if self.recurrent:
            options["reset_automatically"] = False
        # Workers inherit shared memory when they start; a Cage has no workers.
        if self.storage == "shared" and (self.make_cages or self.make_cage) is not Cage:
            options["buffers"] = samples
        if self.make_cages is not None:
            return self.make_cages(self.factories, self.cage_seeds(), **options)
        cages: list[CageInterface] = []
        try:
            for index, factory in enumerate(self.factories):
                cages.append(
                    self.make_cage(factory, seed=self.cage_seeds()[index], index=index, **options)
                )
        except BaseException:
            for cage in cages:
                cage.close()
            raise
        return cages

    # By hand, since `allocate_samples` belongs to parllel_patterns, which parllel may not import.
    def _allocate(self, handler: Handler, transforms: list[Any]) -> Samples:
        memory: Any = {
            "storage": self.storage,
            "switching": self.switching,
            "batches": self.batches,
        }
        spaces = self.spaces()
        observation = stored_example(spaces.observation)
        action, agent_info = agent_examples(handler, observation)
        fields: dict[str, Any] = {"agent_info": agent_info}
        if agent_info is not None:  # without values there are none of final observations
            fields["final_value"] = np.float32(0)
        examples = Samples(
            # In full width, as actions index.
            agent=AgentSamples(action=Field(action, dtype=np.asarray(action).dtype), **fields),
            env=EnvSamples(
                observation=buffer_map(lambda x: Field(x, padding=1), observation),
                reward=np.float32(0),
                terminated=False,
                truncated=False,
                done=False,
                env_info={"step": np.int64(0), "half": np.zeros(1, np.float32)},
            ),
        )
        samples: Samples = allocate(examples, self.batch_spec, **memory)
        if self.recurrent:
            samples = add_fields(samples, {"env.valid": False}, self.batch_spec, **memory)
            state = initial_state_example(handler)
            if state is not None:
                # What an agent remembers is stored once for a batch, from where it starts.
                one_row, path = BatchSpec(1, self.batch_spec.B), "agent.initial_rnn_state"
                samples = add_fields(samples, {path: state}, one_row, **memory)
        samples = add_transform_fields(samples, transforms, self.batch_spec, **memory)
        if "observation" not in samples.agent._fields:
            samples = insert_field(samples, "agent.observation", samples.env.observation)
        return samples


def make_sampler(cls: Callable[..., Any], setup: SamplerSetup, **options: Any) -> Any:
    """Build a sampler of a class from a setup; if it refuses its parts, they are closed."""
    parts = setup.build()
    try:
        return parts.sampler(cls, **options)
    except BaseException:
        parts.close()
        raise
