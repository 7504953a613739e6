"""Proximal policy optimisation, with all updates of a batch in one call of compiled code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from parllel.algos.algorithm import Algorithm
from parllel.algos.arguments import check_counts, check_positive, check_seed
from parllel.algos.ppo_fields import needed_field, paths_of_steps
from parllel.buffers.samples import Samples
from parllel.buffers.tree import named_map
from parllel.jax.named_arrays import named_arrays, tree_of
from parllel.jax.pg_agent import PgAgent
from parllel.jax.ppo_update import ADAM, BAD_GRADIENT, BAD_LOSS, DONE, TERMS, update_of
from parllel.runs.names import suggest_names
from parllel.types import BatchSpec, State, Tree, class_path


class PPO(Algorithm):
    """Proximal policy optimisation: the clipped surrogate objective (Schulman et al. 2017, eq. 7) with Adam.

    Reads `agent.observation`, `action`, `agent_info.value`, `agent_info.log_prob`, `advantage` and
    `return_`, and `env.valid` if it exists. Advantages are used unchanged; normalise them with
    a batch transform. The agent is left in sample mode. Minibatches, diagnostics and, up to rounding, updates
    are those of `parllel.torch.PPO` with the same arguments.

    The first batch of a shape takes a second or more, in which JAX compiles the updates.

    If `agent.importance_weight` exists (see `ImportanceWeights`), the objective of each step is multiplied
    by it, and `learner_value` and `learner_log_prob` replace those of `agent_info`.

    Args:
        agent: the agent to train.
        learning_rate: of Adam, whose epsilon is 1e-5.
        learning_rate_anneal_steps: environment steps over which the learning rate falls linearly
            to zero, counted at the start of each batch; None keeps it.
        epochs: passes over a batch.
        minibatches: updates per pass; steps are shuffled and split as evenly as possible.
        ratio_clip: largest distance of the likelihood ratio from 1.
        value_clip: largest distance of the value from the sampled one, beyond which moving further does
            not lower its error; None disables value clipping.
        value_loss_coeff, entropy_loss_coeff: weights of `value_loss` (half the mean squared
            error) and of the entropy bonus.
        clip_grad_norm: largest norm of all gradients together; None only measures it.
        kl_limit: estimated divergence from the sampling policy above which the rest of the batch is
            skipped, checked before each update; None disables the limit.
        seed: of the shuffling.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number, `epochs` or `minibatches` is not an integer, or the agent
            is not a PgAgent of `parllel.jax`.
    """

    @suggest_names()
    def __init__(
        self,
        agent: PgAgent,
        *,
        learning_rate: float,
        learning_rate_anneal_steps: int | None,
        epochs: int,
        minibatches: int,
        ratio_clip: float,
        value_clip: float | None,
        value_loss_coeff: float,
        entropy_loss_coeff: float,
        clip_grad_norm: float | None,
        kl_limit: float | None,
        seed: int,
    ) -> None:
        if not isinstance(agent, PgAgent):
            raise TypeError(
                f"PPO: agent: expected a PgAgent of parllel.jax, got a {class_path(agent)}"
            )
        check_counts("PPO", epochs=epochs, minibatches=minibatches)
        check_positive(
            "PPO",
            learning_rate=learning_rate,
            learning_rate_anneal_steps=learning_rate_anneal_steps,
            ratio_clip=ratio_clip,
            value_clip=value_clip,
            clip_grad_norm=clip_grad_norm,
            kl_limit=kl_limit,
        )
        check_seed("PPO", seed)
        self.agent = agent
        self.learning_rate = learning_rate
        self.learning_rate_anneal_steps = learning_rate_anneal_steps
        self.epochs = epochs
        self.n_minibatches = minibatches
        self.ratio_clip = ratio_clip
        self.value_clip = value_clip
        self.value_loss_coeff = value_loss_coeff
        self.entropy_loss_coeff = entropy_loss_coeff
        self.clip_grad_norm = clip_grad_norm
        self.kl_limit = kl_limit
        self._generator = np.random.default_rng(seed)
        self._update = update_of(agent.model.apply, agent.distribution)
        moments = ADAM.init(agent.model.parameters)
        self._moments: Any = jax.device_put(moments, agent.device)
        # Steps of the largest batch: smaller ones are filled up to it, as each size is compiled anew.
        self._n_rows = 0

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the fields that are read of a batch."""
        return ["agent.observation", *paths_of_steps(samples).values()]

    def check_batch_spec(self, batch_spec: BatchSpec) -> None:
        """Raise ValueError if batches of this size have fewer steps than there are minibatches."""
        if self.n_minibatches > batch_spec.size:
            raise ValueError(
                f"PPO: minibatches: expected at most {batch_spec.size}, the steps of a batch "
                f"(T={batch_spec.T}, B={batch_spec.B}), got {self.n_minibatches}"
            )
        self._n_rows = max(self._n_rows, batch_spec.size)

    def optimize_agent(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Run the epochs and return diagnostics, averaged over minibatches.

        Those of `parllel.torch.PPO`: `policy_loss`, `value_loss`, `entropy`, `approx_kl`, `clip_fraction`,
        `gradient_norm` before clipping, `explained_variance`, `learning_rate`, the number of complete
        `epochs`, and `early_stop`, which is 1 if `kl_limit` ended the batch.

        Raises:
            ValueError: if a field is missing, or there are fewer valid steps than minibatches.
            FloatingPointError: if a loss or gradient is not finite. The parameters of the last good update
                are kept.
        """
        inputs = self.construct_agent_inputs(samples)
        valid = inputs.pop("valid", None)
        steps = np.arange(len(inputs["return_"])) if valid is None else np.flatnonzero(valid)
        if len(steps) < self.n_minibatches:
            raise ValueError(
                f"PPO: expected at least one step for each of {self.n_minibatches} minibatches, "
                f"got {len(steps)} valid steps"
            )
        # The runner has already counted this batch, but the first batch gets the full learning rate.
        learning_rate = self.anneal_learning_rate(elapsed_steps - len(steps))
        n_rows = self._n_rows = max(self._n_rows, len(inputs["return_"]))
        order = self._shuffle(steps, n_rows, exact=valid is None)
        self.agent.sample_mode()
        updated = self._update(
            self.agent.model.parameters,
            self._moments,
            _filled(inputs, n_rows),
            order.indices,
            order.valid,
            self._settings(learning_rate),
        )
        self.agent.model.parameters, self._moments = updated.parameters, updated.moments
        history, status = np.asarray(updated.history)[: int(updated.n_seen)], int(updated.status)
        self._take_back(order, len(history))
        _check_finite(history, status)
        return {
            **self._means(history, status),
            "explained_variance": _explained_variance(inputs, steps),
            "learning_rate": learning_rate,
            "epochs": (len(history) - (status != DONE)) // self.n_minibatches,
            "early_stop": int(status != DONE),
        }

    def construct_agent_inputs(self, samples: Samples) -> dict[str, Any]:
        """Return the batch as arrays [T * B, ...]: views of the samples where rows are contiguous.

        `agent` has the inputs of the model by name, `observation` and what an override adds to it; the other
        entries are `action`, `log_prob`, `value`, `advantage`, `return_` and perhaps `weight` and `valid`.

        Raises:
            ValueError: if a field is missing.
        """
        who = type(self).__name__

        def flat(path: str) -> Tree:
            field = needed_field(samples, path, who)
            return named_map(lambda leaf: _merged(np.asarray(leaf)), field)

        fields = {name: flat(path) for name, path in paths_of_steps(samples).items()}
        if not isinstance(fields["return_"], np.ndarray):
            raise ValueError(
                f"{who}: agent.return_: expected one array, got a tree of "
                f"{list(fields['return_']._fields)}; parllel.torch.MultiAgentPPO trains several agents"
            )
        return {"agent": {"observation": flat("agent.observation")}, **fields}

    def anneal_learning_rate(self, elapsed_steps: int) -> float:
        """Return the learning rate of a batch that began after `elapsed_steps`."""
        if self.learning_rate_anneal_steps is None:
            return self.learning_rate
        left = 1 - elapsed_steps / self.learning_rate_anneal_steps
        return self.learning_rate * min(max(left, 0.0), 1.0)

    def state(self) -> State:
        """Return the moments of Adam and the state of the shuffling."""
        return {
            "optimizer": named_arrays(self._moments),
            # Without the shuffling state, a resumed run would repeat the shuffles of the run's first batches.
            "generator": self._generator.bit_generator.state,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Raises ValueError for that of another model."""
        self._moments = tree_of(
            self._moments, state["optimizer"], self.agent.device, "PPO", "moments"
        )
        self._generator.bit_generator.state = state["generator"]

    def _settings(self, learning_rate: float) -> dict[str, float]:
        """Return the numbers that the compiled updates read, without those that have no effect."""
        settings = {
            "learning_rate": learning_rate,
            "ratio_clip": self.ratio_clip,
            "value_loss_coeff": self.value_loss_coeff,
            "entropy_loss_coeff": self.entropy_loss_coeff or None,
            "value_clip": self.value_clip,
            "clip_grad_norm": self.clip_grad_norm,
            "kl_limit": self.kl_limit,
        }
        return {name: float(value) for name, value in settings.items() if value is not None}

    def _shuffle(self, steps: NDArray[np.intp], n_rows: int, *, exact: bool) -> _Order:
        """Return the minibatches of all epochs. exact: whether all steps of a batch are valid."""
        n = self.n_minibatches
        shape = (self.epochs, n, -(-n_rows // n))
        even = exact and len(steps) == n_rows and n_rows % n == 0
        indices, states = np.empty(shape, np.int32), []
        valid = None if even else np.zeros(shape, np.bool_)
        for epoch in range(self.epochs):
            order = self._generator.permutation(steps)
            states.append(self._generator.bit_generator.state)
            if valid is None:
                indices[epoch] = order.reshape(n, -1)
                continue
            for i, part in enumerate(np.array_split(order, n)):
                indices[epoch, i, : len(part)] = part
                # Filled with a step that is valid: what another one holds might be NaN.
                indices[epoch, i, len(part) :] = part[0]
                valid[epoch, i, : len(part)] = True
        rows = None if valid is None else valid.reshape(-1, shape[-1])
        return _Order(indices.reshape(-1, shape[-1]), rows, states)

    def _take_back(self, order: _Order, n_seen: int) -> None:
        """Take back the shuffles of epochs that did not begin, so that the next batch gets them."""
        n_begun = -(-n_seen // self.n_minibatches)
        self._generator.bit_generator.state = order.states[n_begun - 1]

    def _means(self, history: NDArray[np.float32], status: int) -> dict[str, float]:
        # Of Python's floats, whose sum is exact.
        columns = dict(zip(("loss", *TERMS, "gradient_norm"), history.T.tolist(), strict=True))
        del columns["loss"]
        if status != DONE:
            del columns["gradient_norm"][-1]  # of the minibatch that led to no update
        return {name: math.fsum(values) / len(values) for name, values in columns.items() if values}


class _Order(NamedTuple):
    """Minibatches of a batch.

    Attributes:
        indices, valid: as for `update_of`.
        states: of the generator, after the shuffle of each epoch.
    """

    indices: NDArray[np.int32]
    valid: NDArray[np.bool_] | None
    states: list[Any]


def _merged(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(-1, *array.shape[2:])


def _filled(inputs: Tree, n_rows: int) -> Tree:
    """Return arrays [n_rows, ...], with zeros after those of the inputs."""

    def filled(leaf: NDArray[Any]) -> NDArray[Any]:
        if len(leaf) == n_rows:
            return leaf
        return np.concatenate((leaf, np.zeros((n_rows - len(leaf), *leaf.shape[1:]), leaf.dtype)))

    return jax.tree_util.tree_map(filled, inputs)


def _check_finite(history: NDArray[np.float32], status: int) -> None:
    loss, *terms, norm = history[-1].tolist()
    if status == BAD_LOSS:
        diagnostics = dict(zip(TERMS, terms, strict=True))
        raise FloatingPointError(
            f"PPO: the loss is not finite ({loss}); diagnostics: {diagnostics}"
        )
    if status == BAD_GRADIENT:
        raise FloatingPointError(f"PPO: the gradient is not finite: its norm is {norm}")


def _explained_variance(inputs: Mapping[str, Any], steps: NDArray[np.intp]) -> float:
    """Return 1 - var(return - value) / var(return) over valid steps; NaN for constant returns."""
    return_, value = (inputs[name][steps].astype(np.float64) for name in ("return_", "value"))
    variance = float(np.var(return_))
    return 1 - float(np.var(return_ - value)) / variance if variance > 0 else math.nan
