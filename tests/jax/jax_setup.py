"""Small agents in JAX, made-up batches, and a full set of arguments for PPO."""

from __future__ import annotations

import numpy as np

from parllel.agents import load_weights
from parllel.buffers import AgentSamples, EnvSamples, Samples
from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.jax import PPO, Categorical, Gaussian, PgAgent, PgModel

SETTINGS = {
    "learning_rate": 1e-2,
    "learning_rate_anneal_steps": None,
    "epochs": 2,
    "minibatches": 3,
    "ratio_clip": 0.2,
    "value_clip": None,
    "value_loss_coeff": 0.5,
    "entropy_loss_coeff": 0.01,
    "clip_grad_norm": 0.5,
    "kl_limit": None,
    "seed": 0,
}
N_INPUTS = 3
DISTRIBUTIONS = {"categorical": Categorical(4, start=2), "gaussian": Gaussian(2)}


def agent_of(head, *, seed=0, hidden=(8, 8), **model):
    """Return an agent whose policy depends on the observation."""
    distribution = DISTRIBUTIONS[head]
    options = {"policy_gain": 1.0, "initial_log_std": -0.3, **model}
    return PgAgent(
        PgModel(N_INPUTS, distribution, hidden, seed, **options), distribution, seed=seed
    )


def ppo(agent, **settings):
    return PPO(agent, **{**SETTINGS, **settings})


def parameters(agent):
    return agent.state()["model"]


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def batch_of(agent, T=8, B=6, *, seed=0, valid=None, weighted=False):
    """Return samples of an earlier policy: ratios and values on both sides of the clip ranges."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    observation = normal(T, B, N_INPUTS)
    action, info = agent.step(observation.reshape(T * B, N_INPUTS))
    action = np.array(action)
    log_prob = np.array(info.log_prob).reshape(T, B) + 0.3 * normal(T, B)
    value = np.array(info.value).reshape(T, B) + 0.3 * normal(T, B)
    weights = {}
    if weighted:
        weights = {
            "importance_weight": np.exp(normal(T, B)),
            "learner_log_prob": log_prob + 0.1 * normal(T, B),
            "learner_value": value + 0.1 * normal(T, B),
        }
    agent_samples = AgentSamples(
        action=action.reshape(T, B, *action.shape[1:]),
        agent_info=NamedArrayTuple(value=value, log_prob=log_prob),
        observation=observation,
        advantage=normal(T, B),
        return_=normal(T, B),
        **weights,
    )
    zeros = np.zeros((T, B), np.bool_)
    env_samples = EnvSamples(
        observation=observation,
        reward=np.zeros((T, B), np.float32),
        terminated=zeros,
        truncated=zeros,
        done=zeros,
        env_info=None,
        valid=valid,
    )
    return Samples(agent=agent_samples, env=env_samples)


def torch_twin(agent, *, hidden=(8, 8), activation="tanh", trunk=()):
    """Return an agent of `parllel.torch` with the same weights."""
    import torch

    from parllel import torch as parllel_torch

    generator = torch.Generator().manual_seed(1)
    inputs = N_INPUTS
    if trunk:
        encode = parllel_torch.MlpEncoder
        inputs = encode(N_INPUTS, trunk, generator=generator, activation=activation)
    one = agent.distribution
    if isinstance(one, Categorical):
        head = parllel_torch.CategoricalHead(one.n)
        distribution = parllel_torch.Categorical(one.n, one.start)
    else:
        head = parllel_torch.GaussianHead(one.shape, 0.0)
        distribution = parllel_torch.Gaussian(one.shape)
    model = parllel_torch.PgModel(inputs, head, hidden, generator, activation=activation)
    twin = parllel_torch.PgAgent(model, distribution, seed=0)
    load_weights(twin, {"model": parameters(agent)})
    return twin
