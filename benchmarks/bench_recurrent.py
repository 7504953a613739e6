"""What is the cost of recurrent sampling's options: states, previous actions, waiting environments?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.buffers import Samples
from parllel.cages import VectorizedCage
from parllel.types import BatchSpec

if TYPE_CHECKING:
    from parllel.torch import RecurrentPgAgent

T, B, RNN_SIZE, FEATURES, ACTIONS = 64, 16, 128, 4, 2


def make_agent(*, prev_action: bool = False, store_rnn_state: bool = False) -> RecurrentPgAgent:
    """Return an LSTM policy, of the same seed each time."""
    from parllel.torch import CategoricalHead, RecurrentPgAgent, RecurrentPgModel
    from parllel.torch.distributions.categorical import Categorical

    model = RecurrentPgModel(
        (FEATURES,),
        CategoricalHead(ACTIONS),
        (64,),
        RNN_SIZE,
        cell="lstm",
        prev_action=prev_action,
        seed=0,
    )
    return RecurrentPgAgent(
        model,
        Categorical(ACTIONS),
        prev_action=0 if prev_action else None,
        store_rnn_state=store_rnn_state,
        seed=0,
    )


def make_samples(agent: RecurrentPgAgent) -> tuple[Any, Samples]:
    """Return a handler bound to a batch with random observations."""
    from parllel.torch import TorchHandler
    from parllel_patterns import allocate_samples

    handler = TorchHandler(agent)
    with VectorizedCage(
        [lambda: gym.make("CartPole-v1")] * B, seeds=range(B), reset_automatically=False
    ) as cage:
        samples = allocate_samples([cage], BatchSpec(T, B), handler)
    generator = np.random.default_rng(0)
    for t in range(T + 1):
        samples.env.observation[t] = generator.normal(size=(B, FEATURES))
    handler.bind(samples)
    return handler, samples


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: more only add noise to matrices of this size."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def acting(handler: Any) -> Callable[[], int]:
    """Return what acts on all rows of a batch."""
    columns = slice(0, B)

    def work() -> int:
        handler.start_batch()
        for t in range(T):
            handler.step(t, columns)
        return T

    return work


@contextmanager
def initial_state() -> Iterator[Sides]:
    """Keep the first state of a batch only, against all of them."""
    with one_thread():
        (ours, mine), (theirs, _) = (
            make_samples(make_agent(store_rnn_state=every)) for every in (False, True)
        )
        work, other = acting(ours), acting(theirs)

        def check() -> None:
            work()
            other()
            assert "rnn_state" not in mine.agent.agent_info._fields

        kept, every = (4 * rows * B * 2 * RNN_SIZE for rows in (1, T))
        yield Sides(work, other, check, f"LSTM of {RNN_SIZE} units: {kept:,} bytes, not {every:,}")


@contextmanager
def previous_action() -> Iterator[Sides]:
    """Store previous actions step by step, against shifting the actions of a finished batch."""
    with one_thread():
        (ours, mine), (theirs, other) = (make_samples(make_agent(prev_action=True)) for _ in "ab")
        info = other.agent.agent_info._replace(prev_action=None)  # not written then
        other = other._replace(agent=other.agent._replace(agent_info=info))
        theirs.bind(other)
        store, act = acting(ours), acting(theirs)
        first, shifted = np.zeros(B, np.int32), np.zeros((T, B), np.int32)

        def shift() -> int:
            done = act()
            action = np.asarray(other.agent.action)
            shifted[0] = first  # columns are one episode each: nothing to zero in between
            shifted[1:] = action[:-1]
            first[:] = action[-1]
            return done

        def check() -> None:
            store()
            shift()
            stored = np.asarray(mine.agent.agent_info.prev_action)
            np.testing.assert_array_equal(stored[1:], shifted[1:])

        yield Sides(store, shift, check, f"{4 * T * B:,} bytes")


def dropping(n_live: int) -> Callable[[], AbstractContextManager[Sides]]:
    """Let the agent act for those that still play, against for all."""

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        with one_thread():
            some_envs, all_envs = make_agent(), make_agent()
            observation = torch.from_numpy(
                np.random.default_rng(0).normal(size=(B, FEATURES)).astype(np.float32)
            )
            live = np.linspace(0, B - 1, n_live).astype(np.intp)
            live_rows = torch.from_numpy(live)
            all_envs.step(observation, env_indices=slice(0, B))
            some_envs.step(observation, env_indices=slice(0, B))
            actions = torch.zeros(B, dtype=torch.int64)

            def drop() -> int:
                seen = observation.index_select(0, live_rows)
                action, _ = some_envs.step(seen, env_indices=live)
                actions.index_copy_(0, live_rows, action.clone())
                return 1

            def keep() -> int:
                all_envs.step(observation, env_indices=slice(0, B))
                return 1

            def check() -> None:
                drop()
                keep()
                value = all_envs.value(observation, env_indices=slice(0, B))
                assert value.shape == (B,)

            yield Sides(drop, keep, check, f"{n_live} of {B} environments still play")

    return make


COMPARISONS = [
    Comparison(
        "recurrent/initial-state",
        "acting with only the first recurrent state of a batch kept, against every one",
        initial_state,
        needs=("torch",),
    ),
    Comparison(
        "recurrent/prev-action",
        "a previous-action array of its own, against shifting the actions afterwards",
        previous_action,
        reads="slower",
        needs=("torch",),
    ),
    Comparison(
        "recurrent/drop-done-4-of-16",
        "acting for the 4 of 16 environments that still play, against for all",
        dropping(4),
        needs=("torch",),
    ),
    Comparison(
        "recurrent/drop-done-12-of-16",
        "the same for 12 of 16",
        dropping(12),
        needs=("torch",),
    ),
]

test_recurrent = timed_sides(COMPARISONS)
