"""Agents that learn from real samples of an environment with several agents."""

from __future__ import annotations

from parllel import BatchSpec, Seeds
from parllel.cages import VectorizedCage
from parllel.envs import ParallelEnvAdapter, multi_agent_info
from parllel.samplers import AlternatingSampler, BasicSampler
from parllel.testing.dummy_parallel_env import CountingParallelEnv
from parllel.torch import (
    Categorical,
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    GaussianPgAgent,
    PgModel,
    TorchHandler,
)
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.models.shared_model import SharedModel
from parllel.transforms import EstimateMultiAgentAdvantage, NormalizeMultiAgentAdvantage
from parllel_patterns import allocate_samples

# fox sees 2 numbers and chooses one of 3, hen sees 3 and moves in two dimensions, dog sees 4.
LIVES = {"fox": 2, "hen": 5, "dog": 3}
ENDS = {"fox": "truncated", "hen": "truncated", "dog": "terminated"}
NAMES = tuple(LIVES)


class SmallNumbers:
    """Scale what `CountingParallelEnv` says to the size that networks are used to."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)

    def reset(self, seed=None, options=None):
        observations, infos = self.env.reset(seed, options)
        return self._small(observations), infos

    def step(self, actions):
        observations, *rest = self.env.step(actions)
        return self._small(observations), *rest

    def _small(self, parts):
        return {name: part / 100 for name, part in parts.items()}


def make_env(lives=LIVES, ends=ENDS):
    return ParallelEnvAdapter(SmallNumbers(CountingParallelEnv(lives, ends)))


def single_agents(hidden=()):
    """Return an agent of each kind that the environment wants, by name."""
    fox = PgModel((2,), CategoricalHead(3), hidden, seed=1)
    hen = PgModel((3,), GaussianHead((2,), initial_log_std=-0.5), hidden, seed=2)
    dog = PgModel((4,), CategoricalHead(3), hidden, seed=3)
    return {
        "fox": CategoricalPgAgent(fox, 3, seed=1),
        "hen": GaussianPgAgent(hen, (2,), seed=2),
        "dog": CategoricalPgAgent(dog, 3, seed=3),
    }


def independent(hidden=()):
    return IndependentAgents(single_agents(hidden))


class Twins(CountingParallelEnv):
    """Agents of equal spaces: each sees two numbers and chooses one of 3."""

    def __init__(self, lives, ends):
        super().__init__(lives, ends)
        first = next(iter(self._spaces.values()))
        self._spaces = dict.fromkeys(self._spaces, first)

    def _observations(self, names):
        return {name: part[:2] / 100 for name, part in super()._observations(names).items()}


def make_twins(lives=LIVES, ends=ENDS):
    return ParallelEnvAdapter(Twins(lives, ends))


def shared(seed=4):
    model = PgModel((2 + len(NAMES),), CategoricalHead(3), (), seed=seed)
    return EnsembleAgent(
        SharedModel(model, NAMES, one_hot=True), dict.fromkeys(NAMES, Categorical(3)), seed=5
    )


def build(agent, factory, T=8, B=4, alternating=False):
    """Return a sampler of `agent`; the caller closes it."""
    seeds = Seeds(0).spawn("environments", B)
    n = B // 2 if alternating else B
    cages = [
        VectorizedCage([factory] * n, seeds=seeds[first : first + n]) for first in range(0, B, n)
    ]
    spec = BatchSpec(T, B)
    handler = TorchHandler(agent)
    transforms = [EstimateMultiAgentAdvantage(0.9, 0.8), NormalizeMultiAgentAdvantage()]
    info = multi_agent_info(cages[0].spaces.action)
    samples = allocate_samples(cages, spec, handler, transforms, env_info=info)
    make = AlternatingSampler if alternating else BasicSampler
    return make(spec, cages, handler, samples, batch_transforms=transforms)
