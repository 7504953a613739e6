"""Agents, models and PPO in JAX. PyTorch is not imported.

Raises:
    ImportError: if JAX or optax is not installed.
"""

from parllel.errors import install_command as _install_command

try:
    import jax as _jax  # noqa: F401
    import optax as _optax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("jax", "jaxlib", "optax"):
        raise
    raise ImportError(f"parllel.jax needs JAX and optax: {_install_command('jax')}") from error

from parllel.jax.agent_for import agent_for
from parllel.jax.distributions import Categorical, Distribution, Gaussian, GaussianParams
from parllel.jax.model import Model, PgOutput
from parllel.jax.pg_agent import PgAgent
from parllel.jax.pg_model import PgModel
from parllel.jax.ppo import PPO

__all__ = [
    "PPO",
    "Categorical",
    "Distribution",
    "Gaussian",
    "GaussianParams",
    "Model",
    "PgAgent",
    "PgModel",
    "PgOutput",
    "agent_for",
]
