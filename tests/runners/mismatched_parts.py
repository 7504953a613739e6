"""The parts of a small training, and the mistakes that a script can make with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from parllel import BatchSpec, Seeds
from parllel.agents import Agent, Handler, RandomAgent
from parllel.algos import Algorithm, TransformingAlgorithm
from parllel.buffers import Field
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.distributed.rollouts import SynchronousSchedule
from parllel.logging import Logger
from parllel.runners import AsynchronousRunner, Callback, OnPolicyRunner
from parllel.samplers import (
    AsynchronousSampler,
    BasicSampler,
    EvalSampler,
    FullEpisodeSampler,
    Plan,
    RolloutSampler,
)
from parllel.system.processes import RestartBudget
from parllel.torch import (
    PPO,
    BehaviorCloning,
    CpuSamplingHandler,
    EvaluatePolicy,
    RecurrentPPO,
    SmallPolicyHandler,
    TorchHandler,
    agent_for,
)
from parllel.torch.agents.recurrent_pg_agent import RecurrentPgAgent
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.models.heads import CategoricalHead
from parllel.torch.models.recurrent_pg_model import RecurrentPgModel
from parllel.transforms import (
    BatchTransform,
    ClipRewards,
    EstimateAdvantage,
    EstimateVtrace,
    FinalObservations,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
    StepTransform,
)
from parllel.transforms.returns import DiscountedReturns
from parllel_patterns import (
    PPO_DEFAULTS,
    allocate_eval_samples,
    allocate_samples,
    build_cages,
    build_eval_sampler,
    build_sampler,
)

SPEC = BatchSpec(T=8, B=2)
NORMALIZED = "env.normalized_reward"
make_cart = partial(gym.make, "CartPole-v1")


class Parts:
    """Parts that belong together; a mistake exchanges some of them."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.seeds = Seeds(0)
        self.cages = self.more_cages("environments")
        self.agent = self.new_agent()
        self.handler: Handler = TorchHandler(self.agent)
        self.step_transforms: list[Any] = []
        self.batch_transforms: list[Any] = [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]

    def more_cages(self, name: str, n: int = SPEC.B, make: Any = make_cart, **options: Any) -> Any:
        seeds = options.pop("seeds", self.seeds)
        return build_cages(make, n, seeds=seeds, name=name, stack=self.stack, **options)

    def new_agent(self) -> Any:
        return agent_for(self.cages[0].spaces, seeds=Seeds(1), hidden_sizes=(4,))

    def with_memory(self) -> Parts:
        self.cages = self.more_cages("waiting", reset_automatically=False)
        self.agent = self.recurrent_agent()
        self.handler = TorchHandler(self.agent)
        return self

    def recurrent_agent(self) -> Any:
        model = RecurrentPgModel((4,), CategoricalHead(2), (4,), 4, cell="gru", seed=1)
        return RecurrentPgAgent(model, Categorical(2), seed=2)

    def sampler(self, **options: Any) -> Any:
        lists = self.step_transforms, self.batch_transforms
        made = build_sampler(SPEC, self.cages, self.handler, *lists, **options)
        return self.stack.enter_context(made)

    def eval_sampler(self, sampler: Any = None, **cages: Any) -> Any:
        made = self.more_cages("evaluation", **cages)
        return self.stack.enter_context(build_eval_sampler(made, sampler or self.sampler(), SPEC.B))

    def eval_of(self, handler: Handler, step_transforms: Any = ()) -> Any:
        cages = self.more_cages("evaluation")
        samples = allocate_eval_samples(cages)
        made = EvalSampler(cages, handler, samples, SPEC.B, step_transforms)
        return self.stack.enter_context(made)

    def ppo(self, agent: Any = None, kind: Any = PPO, **settings: Any) -> Any:
        settings = {**PPO_DEFAULTS, "minibatches": 2, **settings}
        return kind(agent or self.agent, **settings, seed=3)

    def run(
        self, sampler: Any = None, algorithm: Any = None, spec: BatchSpec = SPEC, **options: Any
    ) -> OnPolicyRunner:
        options = {"n_steps": 32, "log_interval_steps": 16, "logger": Logger([]), **options}
        algorithm = algorithm or self.ppo()
        return OnPolicyRunner(spec, sampler or self.sampler(), algorithm, **options)

    def transforming(self, *transforms: Any) -> Any:
        return TransformingAlgorithm(self.ppo(), transforms)


class PenaliseFalls(BatchTransform):
    """As on the page "Write your own"."""

    def fields(self, samples):
        return {"env.shaped_reward": Field(np.float32(0))}

    def transform_batch(self, samples):
        reward, terminated = np.asarray(samples.env.reward), np.asarray(samples.env.terminated)
        samples.env.shaped_reward[...] = reward - terminated


class Halve(StepTransform):
    """Without a state: two of them are one."""

    reads = ("env.observation",)

    def fields(self, samples):
        shape = samples.env.observation.shape[2:]
        return {"agent.observation": Field(np.zeros(shape, np.float32), padding=1)}

    def transform_step(self, samples, t, columns):
        raw = np.asarray(samples.env.observation[t, columns])
        samples.agent.observation[t, columns] = self.transform_final(raw)

    def transform_final(self, observation):
        return observation / 2


class Weights(Agent):
    """Has weights, and names those that it is told to."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.weights = {"table": np.zeros(3)}
        self.names = names

    def step(self, observation, *, env_indices=slice(None), noise=None):
        return np.zeros(len(observation), np.int64), None

    def models(self):
        return {name: self.weights[name] for name in self.names}

    def state(self):
        return dict(self.weights)


class Silent(Algorithm):
    """An algorithm of a user, which says nothing of its parts."""

    def optimize_agent(self, elapsed_steps, samples):
        return {}


class OwnInputs(PPO):
    """Reads a field more than PPO does, and does not say so."""

    def construct_agent_inputs(self, samples):
        assert np.asarray(samples.env.shaped_reward).shape == SPEC.shape
        return super().construct_agent_inputs(samples)


class Average(TorchHandler):
    """Acts with an average of the weights of another agent."""

    def __init__(self, agent, trained):
        super().__init__(agent)
        self.trained = trained


@dataclass(frozen=True)
class Row:
    """A mistake, what is said to it, and what is close to it and right."""

    mistake: Callable[[Parts], Any]
    said: str
    right: Callable[[Parts], Any]
    error: type[Exception] = ValueError


ROWS: dict[str, Row] = {}


def row(said: str, right: Callable[[Parts], Any], error: type[Exception] = ValueError) -> Any:
    """Add a function, which makes a mistake, to the rows, under its name."""

    def add(mistake: Callable[[Parts], Any]) -> Any:
        ROWS[mistake.__name__.replace("_", "-")] = Row(mistake, said, right, error)
        return mistake

    return add


# ---------------------------------------------------------------- one part, two owners


@row(
    r"environment 1: expected a new environment .* which another place in this cage already steps",
    lambda p: p.more_cages("others", 2, make=make_cart),
)
def env_two_columns(p):
    env = make_cart()
    p.more_cages("others", 2, make=lambda: env)


def closed_first(p):
    env = make_cart()
    build_cages(lambda: env, 1, seeds=p.seeds, name="first")[0].close()
    p.more_cages("second", 1, make=lambda: env)


@row("environment 0: expected .* which another cage already steps", closed_first)
def env_two_cages(p):
    env = make_cart()
    p.more_cages("first", 1, make=lambda: env)
    p.more_cages("second", 1, make=lambda: gym.wrappers.TimeLimit(env, 7))


def sampler_after_another(p):
    first = p.sampler()
    first.close()
    p.cages = p.more_cages("again")
    p.sampler().collect_batch(0)


@row(
    "cage 0 .*: expected a cage of this sampler's own, got one that another", sampler_after_another
)
def cage_two_samplers(p):
    first = p.sampler()
    p.handler, p.batch_transforms = TorchHandler(p.agent), []
    return first, p.sampler()


@row("cage 0 .*: expected a cage of this sampler's own", lambda p: p.run(eval_sampler=None))
def cage_training_and_evaluation(p):
    sampler = p.sampler()
    build_eval_sampler(p.cages, sampler, SPEC.B)


def two_handlers(p):
    first = p.sampler()
    p.cages, p.handler, p.batch_transforms = p.more_cages("b"), TorchHandler(p.agent), []
    second = p.sampler()
    for sampler in (first, second, first):
        sampler.collect_batch(0)


@row(
    "handler: expected one that this BasicSampler has to itself, got that of another", two_handlers
)
def handler_two_samplers(p):
    first = p.sampler()
    p.cages, p.batch_transforms = p.more_cages("b"), []
    return first, p.sampler()


@row("samples: expected one that this BasicSampler has to itself", two_handlers)
def buffer_two_samplers(p):
    p.batch_transforms = []
    first = p.sampler()
    BasicSampler(SPEC, p.more_cages("b"), TorchHandler(p.agent), first.samples)


@row(
    "NormalizeObservations: expected one that this BasicSampler has to itself",
    lambda p: evaluated_alike(p),
)
def transform_two_samplers(p):
    p.step_transforms = [NormalizeObservations()]
    first = p.sampler()
    p.cages, p.handler, p.batch_transforms = p.more_cages("b"), TorchHandler(p.agent), []
    return first, p.sampler()


def two_normalised(p):
    p.batch_transforms = [
        NormalizeRewards(0.99, target="env.first"),
        NormalizeRewards(0.99, source="env.first", target="env.second"),
        EstimateAdvantage(0.99, 0.95, reward="env.second"),
    ]
    p.run()


@row("transforms: expected each once, got the same NormalizeAdvantage twice", two_normalised)
def transform_given_twice(p):
    p.batch_transforms.append(p.batch_transforms[-1])
    p.sampler()


@row(
    "TransformingAlgorithm: transforms: expected a separate NormalizeAdvantage",
    lambda p: p.run(algorithm=p.transforming(NormalizeAdvantage())),
)
def transform_sampler_and_algorithm(p):
    p.run(algorithm=p.transforming(p.batch_transforms[-1]))


def one_memory_each(p):
    first = p.with_memory().sampler()
    p.cages = p.more_cages("b", reset_automatically=False)
    p.handler, p.batch_transforms = TorchHandler(p.recurrent_agent()), []
    return first, p.sampler()


@row("handler.agent: expected one that this RecurrentSampler has to itself", one_memory_each)
def memory_two_samplers(p):
    first = p.with_memory().sampler()
    p.cages = p.more_cages("b", reset_automatically=False)
    p.handler, p.batch_transforms = TorchHandler(p.agent), []
    return first, p.sampler()


@row(
    "callbacks: expected different objects, got the same Callback twice",
    lambda p: p.run(callbacks=[Callback(), Callback()]),
)
def callback_given_twice(p):
    callback = Callback()
    p.run(callbacks=[callback, callback])


# ---------------------------------------------------------------- agents


def same_model(p):
    twin = p.new_agent()
    twin.model = p.agent.model
    p.run(algorithm=p.ppo(twin))


@row("PPO trains a PgAgent, but the BasicSampler samples with another PgAgent", same_model)
def agent_sampler_and_algorithm(p):
    p.run(algorithm=p.ppo(p.new_agent()))


def on_another_device(p):
    p.handler = CpuSamplingHandler(p.agent)
    p.run()


@row("another PgAgent through a TorchHandler, with which it shares 4 of", on_another_device)
def agent_some_parameters(p):
    other = p.new_agent()
    other.model.policy = p.agent.model.policy
    p.run(algorithm=p.ppo(other))


def cloned(p):
    p.batch_transforms = []
    p.run(algorithm=BehaviorCloning(p.new_agent(), labels="agent.action", seed=1))


@row("but the BasicSampler samples with another RandomAgent", cloned)
def agent_that_samples_at_random(p):
    from parllel.agents import NumpyHandler

    p.handler = NumpyHandler(RandomAgent(p.cages[0].spaces.action, seed=1))
    p.batch_transforms = []
    p.run(algorithm=p.ppo(agent_for(p.cages[0].spaces, seeds=Seeds(2))))


def evaluated_average(p):
    sampler = p.sampler()
    p.run(sampler, eval_sampler=p.eval_of(Average(p.new_agent(), trained=p.agent)))


@row("eval_sampler: expected the PgAgent that PPO trains, got another PgAgent", evaluated_average)
def agent_evaluation(p):
    p.run(eval_sampler=p.eval_of(TorchHandler(p.new_agent())))


def frozen_critic(p):
    algorithm = p.ppo()
    p.agent.model.critic = p.new_agent().model.critic
    p.run(algorithm=algorithm)


@row("PPO: optimizer: expected the parameters of the PgAgent's model, got none", frozen_critic)
def optimizer_other_parameters(p):
    algorithm = p.ppo()
    p.agent.model = p.new_agent().model
    p.run(algorithm=algorithm)


def learner(p):
    p.batch_transforms = [FinalObservations()]
    p.run(algorithm=p.transforming(EvaluatePolicy(p.agent), EstimateVtrace(0.99)))


@row("EvaluatePolicy: agent: expected the PgAgent that PPO trains, got another", learner)
def agent_evaluate_policy(p):
    p.transforming(EvaluatePolicy(p.new_agent()), EstimateVtrace(0.99))


@row(
    "PPO: agent: expected .* got RecurrentPgAgent. Use RecurrentPPO",
    lambda p: p.with_memory().run(algorithm=p.ppo(kind=RecurrentPPO)),
    TypeError,
)
def memory_with_ppo(p):
    p.with_memory().ppo()


@row("RecurrentPPO: agent: expected a recurrent agent", lambda p: p.run(), TypeError)
def recurrent_ppo_without_memory(p):
    p.ppo(kind=RecurrentPPO)


@row(
    "BasicSampler cannot run a recurrent agent",
    lambda p: p.with_memory().sampler(),
)
def memory_with_basic_sampler(p):
    p.handler = TorchHandler(p.recurrent_agent())
    p.sampler()


def asynchronous(p, names):
    with AsynchronousSampler(build_nothing, agent=Weights(names)):
        pass


def build_nothing():
    raise RuntimeError("not built in this test")


@row(
    r"Weights.models\(\): expected the names of its weights, got {}, but .* numbers in table",
    lambda p: AsynchronousSampler(build_nothing, agent=None).close(),
)
def weights_not_named(p):
    asynchronous(p, ())


@row(
    "OnPolicyRunner: sampler: expected a sampler that acts with the algorithm's agent itself",
    lambda p: p.run(),
    TypeError,
)
def publishing_sampler_never_published(p):
    with AsynchronousSampler(build_nothing, agent=p.agent) as sampler:
        p.run(sampler)


def workers_act(p, source):
    [cage] = p.more_cages("workers", parallel=Plan(n_workers=1, n_main=0))
    handler = SmallPolicyHandler(p.agent)
    cage.set_policy((source or handler).worker_policy())
    samples = allocate_samples([cage], SPEC, handler, noise=True)
    with RolloutSampler(SPEC, [cage], handler, samples) as sampler:
        sampler.collect_batch(0)


@row(
    "cage 0 .*: expected the policy of this sampler's SmallPolicyHandler, got that of another",
    lambda p: workers_act(p, None),
)
def policy_of_another_handler(p):
    workers_act(p, SmallPolicyHandler(p.new_agent()))


@row(
    "state_parts: 'agent': expected the PgAgent of PPO, got another PgAgent",
    lambda p: p.run(state_parts={"agent": p.agent, "opponent": p.new_agent()}),
)
def saved_agent(p):
    p.run(state_parts={"agent": p.new_agent()})


# ---------------------------------------------------------------- fields


def shaped(p):
    p.batch_transforms[:1] = [
        PenaliseFalls(),
        EstimateAdvantage(0.99, 0.95, reward="env.shaped_reward"),
    ]
    p.run()


@row(
    "PenaliseFalls: writes env.shaped_reward, which nothing reads .*EstimateAdvantage reads", shaped
)
def field_nothing_reads(p):
    p.batch_transforms.insert(0, PenaliseFalls())
    p.run()


def read_by_a_callback(p):
    p.batch_transforms.insert(0, ClipRewards(-1, 1))
    p.run(also_reads=["env.clipped_reward"])


@row("ClipRewards: writes env.clipped_reward, which nothing reads", read_by_a_callback)
def field_of_a_later_run(p):
    p.batch_transforms.append(ClipRewards(-1, 1))
    p.run()


def read_by_a_subclass(p):
    p.batch_transforms.insert(0, PenaliseFalls())
    p.run(algorithm=p.ppo(kind=OwnInputs)).run()


@row("NormalizeObservations: writes agent.normalized, which nothing reads", read_by_a_subclass)
def field_the_agent_does_not_see(p):
    p.step_transforms = [NormalizeObservations(target="agent.normalized")]
    p.run()


@row("EstimateAdvantage: writes agent.advantage, .*BehaviorCloning reads", cloned)
def field_the_algorithm_does_not_read(p):
    del p.batch_transforms[1:]
    p.run(algorithm=BehaviorCloning(p.agent, labels="agent.action", seed=1))


def nothing_said(p):
    p.batch_transforms = [PenaliseFalls()]
    p.run(algorithm=Silent()).run()


@row("PPO needs the field agent.advantage, which nothing writes.* EstimateAdvantage", nothing_said)
def field_the_algorithm_misses(p):
    p.batch_transforms = []
    p.run()


@row("EstimateAdvantage needs the field env.normalized_reward", shaped)
def field_nothing_writes(p):
    p.batch_transforms[0] = EstimateAdvantage(0.99, 0.95, reward=NORMALIZED)
    p.sampler()


@row("NormalizeAdvantage: reads agent.advantage, which EstimateAdvantage writes later", shaped)
def transforms_order(p):
    p.batch_transforms.reverse()
    p.sampler()


@row(
    "agent.advantage: two transforms write it",
    lambda p: p.run(algorithm=p.transforming(NormalizeAdvantage())),
)
def field_written_twice(p):
    p.run(algorithm=p.transforming(EstimateAdvantage(0.99, 0.95)))


def allocated_for(p, transforms, given):
    samples = allocate_samples(p.cages, SPEC, p.handler, transforms)
    BasicSampler(SPEC, p.cages, p.handler, samples, [], given)


@row(
    "agent.advantage was allocated for EstimateAdvantage, which was not given to the sampler",
    lambda p: allocated_for(p, p.batch_transforms, p.batch_transforms),
)
def transforms_of_buffer_and_sampler(p):
    allocated_for(p, p.batch_transforms, [])


def discounts(p, first):
    p.batch_transforms = [
        NormalizeRewards(first),
        EstimateAdvantage(0.99, 0.95, reward=NORMALIZED),
    ]
    p.sampler()


@row(
    r"transforms: expected one discount for all, got NormalizeRewards\(0.9\), EstimateAdvantage",
    lambda p: discounts(p, 0.99),
    UserWarning,
)
def discount_two_transforms(p):
    discounts(p, 0.9)


# ---------------------------------------------------------------- sizes and spaces


def own_sampler(p):
    """A sampler without a batch spec is not asked for one."""
    sampler = p.sampler()
    del sampler.batch_spec
    p.run(sampler, spec=BatchSpec(16, 2))


@row(r"batch_spec: expected BatchSpec\(T=8, B=2\), the batch_spec of the BasicSampler", own_sampler)
def batch_spec_runner(p):
    p.run(spec=BatchSpec(16, 2))


def built_there(transforms=None):
    cages = build_cages(make_cart, SPEC.B, seeds=Seeds(0))
    agent = agent_for(cages[0].spaces, seeds=Seeds(1), hidden_sizes=(4,))
    transforms = transforms or [EstimateAdvantage(0.99, 0.95)]
    return build_sampler(SPEC, cages, TorchHandler(agent), [], transforms)


def run_asynchronously(p, spec):
    with AsynchronousSampler(built_there, agent=p.agent) as sampler:
        steps = {"n_steps": 32, "log_interval_steps": 16}
        AsynchronousRunner(spec, sampler, p.ppo(), logger=Logger([]), **steps).run()


@row(
    "batch_spec: expected T=8, B=2, the size of the AsynchronousSampler's batches",
    lambda p: run_asynchronously(p, SPEC),
)
def batch_spec_asynchronous(p):
    run_asynchronously(p, BatchSpec(4, 4))


@row("cages: expected 2 environments for B=2, got 3", lambda p: p.sampler())
def batch_spec_cages(p):
    p.cages = p.more_cages("b", 3)
    p.sampler()


def buffer_of(p, spec=SPEC, make=make_cart):
    cages = p.more_cages("b", spec.B, make=make)
    agent = agent_for(cages[0].spaces, seeds=Seeds(3))
    samples = allocate_samples(cages, spec, TorchHandler(agent))
    BasicSampler(SPEC, p.cages, p.handler, samples)


@row(r"samples: expected \[T, B\] = \(8, 2\)", lambda p: buffer_of(p))
def batch_spec_buffer(p):
    buffer_of(p, BatchSpec(4, 2))


@row(r"env.observation: expected an Array \[T, B, \*\[4\]\]", lambda p: buffer_of(p))
def buffer_of_other_cages(p):
    buffer_of(p, make=partial(gym.make, "Acrobot-v1"))


@row(
    r"cage 1 \(Acrobot-v1\): expected the spaces of cage 0",
    lambda p: side_by_side(p, make_cart),
)
def spaces_side_by_side(p):
    side_by_side(p, partial(gym.make, "Acrobot-v1"))


def side_by_side(p, make):
    p.cages = [*p.more_cages("b", 1), *p.more_cages("c", 1, make=make)]
    p.sampler()


@row(
    r"PPO: minibatches: expected at most 16, the steps of a batch",
    lambda p: p.run(algorithm=p.ppo(minibatches=5)),  # as evenly as possible
)
def minibatches_of_batch(p):
    p.run(algorithm=p.ppo(minibatches=17))


@row(
    r"agent.action: expected Discrete\(3\), PgAgent draws from Discrete\(2\)",
    lambda p: p.run(p.sampler()),
)
def spaces_of_agent_and_cages(p):
    p.cages = p.more_cages("b", make=partial(gym.make, "MountainCar-v0"))
    p.sampler()


# ---------------------------------------------------------------- evaluation


def evaluated(p, **cages):
    sampler = p.sampler()
    p.run(sampler, eval_sampler=p.eval_sampler(sampler, **cages))


def rescaled():
    return gym.wrappers.TransformObservation(
        make_cart(), lambda seen: seen / 2, gym.spaces.Box(-9, 9, (4,))
    )


@row("eval_sampler: cages: expected the observations of training", evaluated)
def spaces_of_evaluation(p):
    evaluated(p, make=rescaled)


def evaluated_alike(p):
    p.step_transforms = [Halve()]
    sampler = p.sampler()
    p.run(sampler, eval_sampler=p.eval_of(p.handler, [Halve()]))


@row(
    "expected the NormalizeObservations of the sampler, .* another NormalizeObservations",
    evaluated_alike,
)
def statistics_of_evaluation(p):
    p.step_transforms = [NormalizeObservations()]
    sampler = p.sampler()
    p.run(sampler, eval_sampler=p.eval_of(p.handler, [NormalizeObservations()]))


def evaluated_by_another_handler(p):
    p.step_transforms = [NormalizeObservations()]
    sampler = p.sampler()
    p.run(sampler, eval_sampler=p.eval_of(TorchHandler(p.agent), p.step_transforms))


@row(
    "step_transforms: expected the transform that writes agent.observation in training",
    evaluated_by_another_handler,
)
def transforms_of_evaluation(p):
    p.step_transforms = [NormalizeObservations()]
    sampler = p.sampler()
    p.run(sampler, eval_sampler=p.eval_of(TorchHandler(p.agent)))


@row(
    "eval_sampler: expected a sampler for evaluation, got the BasicSampler used for training",
    evaluated,
)
def sampler_evaluates(p):
    sampler = p.sampler()
    p.run(sampler, eval_sampler=sampler)


@row(
    "eval_sampler: expected a sampler that plays whole episodes, got a BasicSampler",
    evaluated,
    TypeError,
)
def another_sampler_evaluates(p):
    sampler = p.sampler()
    p.cages, p.handler, p.batch_transforms = p.more_cages("b"), TorchHandler(p.agent), []
    p.run(sampler, eval_sampler=p.sampler())


@row("sampler: expected a sampler for training, got an EvalSampler", evaluated, TypeError)
def evaluation_trains(p):
    p.run(p.eval_sampler())


# ---------------------------------------------------------------- seeds, schedules, checkpoints


@row("seed 'agent' was requested twice", lambda p: [p.seeds.integer(n) for n in "ab"])
def seed_name_twice(p):
    p.seeds.integer("agent")
    p.seeds.integer("agent")


def seeded_cages(p, *entropies):
    p.cages = [
        VectorizedCage([make_cart], seeds=Seeds(entropy).spawn("environments", 1))
        for entropy in entropies
    ]
    for cage in p.cages:
        p.stack.enter_context(cage)
    p.sampler()


@row(
    "cages: environments 0 and 1 have the same seed",
    lambda p: seeded_cages(p, 0, 1),
    UserWarning,
)
def seeds_of_two_cages(p):
    seeded_cages(p, 0, 0)


def seeded_evaluation(p, name):
    sampler = p.sampler()
    cages = p.more_cages(name, seeds=Seeds(0))
    eval_sampler = p.stack.enter_context(build_eval_sampler(cages, sampler, SPEC.B))
    p.run(sampler, eval_sampler=eval_sampler)


@row(
    "eval_sampler: 2 of its environments have seeds of the environments of training",
    lambda p: seeded_evaluation(p, "evaluation"),
    UserWarning,
)
def seeds_of_evaluation(p):
    seeded_evaluation(p, "environments")


@row(
    r"seeds: expected the Seeds that the parts .* got Seeds\(0\), of which none was asked for",
    lambda p: p.run(seeds=p.seeds),
    UserWarning,
)
def seeds_of_runner(p):
    p.run(seeds=Seeds(0))


@row(
    "PPO: learning_rate_anneal_steps is 16, and the run has n_steps=32",
    lambda p: p.run(algorithm=p.ppo(learning_rate_anneal_steps=64)),
    UserWarning,
)
def schedule_of_runner(p):
    p.run(algorithm=p.ppo(learning_rate_anneal_steps=16))


def resumed(p, change):
    state = p.run().state()
    q = Parts(p.stack)
    q.run(algorithm=change(q)).load_state(state)


class MyPPO(PPO):
    """Goes on from checkpoints of PPO."""


@row(
    "algorithm: expected the state of BehaviorCloning, got the state of PPO",
    lambda p: resumed(p, lambda q: q.ppo(kind=MyPPO)),
)
def checkpoint_of_another_algorithm(p):
    def change(q):
        q.batch_transforms = []
        return BehaviorCloning(q.agent, labels="agent.action", seed=1)

    resumed(p, change)


@row(
    "agent: ValueError: PgModel: policy.layers.0.weight: expected shape",
    lambda p: resumed(p, lambda q: q.ppo(learning_rate=0.5)),
)
def checkpoint_of_another_model(p):
    def change(q):
        q.agent = agent_for(q.cages[0].spaces, seeds=Seeds(1), hidden_sizes=(5,))
        q.handler = TorchHandler(q.agent)
        return q.ppo()

    resumed(p, change)


@row(
    "sampler: ValueError: transforms: expected the states of",
    lambda p: resumed(p, lambda q: q.ppo()),
)
def checkpoint_of_other_transforms(p):
    def change(q):
        q.batch_transforms.pop()
        return q.ppo()

    resumed(p, change)


# ---------------------------------------------------------------- restarts of dead processes


def mortal(p, restarts=True, **options):
    """Return a cage whose workers are replaced if they die."""
    budget = RestartBudget(3, 60.0) if restarts else None
    options = {"n_workers": 1, "seeds": range(SPEC.B), "restarts": budget, **options}
    cage = SynchronizedProcessCage([make_cart] * SPEC.B, start_method="fork", **options)
    return [p.stack.enter_context(cage)]


def mortal_run(p, algorithm=None, **cages):
    p.cages = mortal(p, **cages)
    return p.run(algorithm=algorithm)


@row(
    "restarts: expected all environments in workers, .* got parallel=False; pass",
    lambda p: p.more_cages(
        "b", restarts=RestartBudget(3, 60.0), parallel=Plan(1), start_method="fork"
    ),
)
def restarts_in_this_process(p):
    p.more_cages("b", restarts=RestartBudget(3, 60.0))


@row("restarts: expected None with participate=True", lambda p: mortal(p))
def restarts_participate(p):
    mortal(p, participate=True)


@row('restarts: expected None with wait="semaphore"', lambda p: mortal(p))
def restarts_semaphores(p):
    mortal(p, wait="semaphore")


@row(
    "restarts: expected None with infos=True",
    lambda p: mortal(p, restarts=False, infos=True),
)
def restarts_infos(p):
    mortal(p, infos=True)


def small_policy(p, restarts):
    (cage,) = p.cages = mortal(p, restarts)
    p.handler = SmallPolicyHandler(p.agent)
    cage.set_policy(p.handler.worker_policy())


@row("set_policy: expected a cage without restarts", lambda p: small_policy(p, restarts=False))
def restarts_policies_in_workers(p):
    small_policy(p, restarts=True)


def rolled_out(p, restarts):
    if restarts:
        p.cages = mortal(p)
    else:
        small_policy(p, restarts=False)
    samples = allocate_samples(p.cages, SPEC, p.handler, noise=True)
    RolloutSampler(SPEC, p.cages, p.handler, samples).close()


@row("RolloutSampler: cage 0 .* without restarts", lambda p: rolled_out(p, restarts=False))
def restarts_rollout_sampler(p):
    rolled_out(p, restarts=True)


def full_episodes(p, restarts):
    p.cages = mortal(p, restarts, reset_automatically=False)
    samples = allocate_samples(p.cages, SPEC, p.handler)
    FullEpisodeSampler(SPEC, p.cages, p.handler, samples).close()


@row("FullEpisodeSampler: cage 0 .* without restarts", lambda p: full_episodes(p, restarts=False))
def restarts_full_episodes(p):
    full_episodes(p, restarts=True)


def fragments(p, restarts):
    p.cages = mortal(p, restarts)
    SynchronousSchedule(p.sampler())


@row("SynchronousSchedule: cage 0 .* without restarts", lambda p: fragments(p, restarts=False))
def restarts_fragments(p):
    fragments(p, restarts=True)


@row(r"samples: expected a field env\.valid, bool \[8, 2\]", mortal_run)
def restarts_buffer(p):
    samples = allocate_samples(mortal(p, restarts=False), SPEC, p.handler)
    BasicSampler(SPEC, mortal(p), p.handler, samples)


@row(r"samples: expected no field env\.next_observation", mortal_run)
def restarts_next_observation(p):
    p.cages = mortal(p)
    p.sampler(next_observation=True)


@row("DiscountedReturns: .* has skips_invalid = False", mortal_run)
def restarts_transform(p):
    p.batch_transforms = [DiscountedReturns(0.99, value=None)]
    mortal_run(p)


class Eager(BatchTransform):
    """Uses every row."""

    skips_invalid = False

    def transform_batch(self, samples):
        pass


class Careful(Eager):
    """Uses the valid rows."""

    skips_invalid = True
    reads = ("env.valid",)


def careful(p):
    mortal_run(p, p.transforming(Careful()))


@row("Eager: .* has skips_invalid = False", careful)
def restarts_transform_of_algorithm(p):
    mortal_run(p, p.transforming(Eager()))


@row("Silent: expected an algorithm that reads env.valid", mortal_run)
def restarts_algorithm(p):
    mortal_run(p, Silent())


class Forgetful(Silent):
    """Reads the rewards of all rows."""

    def reads(self, samples):
        return ["env.reward"]


@row("Forgetful: expected an algorithm that reads env.valid", careful)
def restarts_algorithm_with_transforms(p):
    mortal_run(p, TransformingAlgorithm(Forgetful(), [Careful()]))


torch.set_num_threads(1)
