"""What a checkpoint keeps of environments, between two rows.

    the environment      its state, and the generators of environment and action space, where it offers them
    what the cage adds   the seed of the next reset, whether one is due or prepared, the episode in progress

Without the second part an environment would be where it was, and still play on differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.envs.states.env_state import env_state, load_env_state, missing_env_state
from parllel.envs.states.random_state import load_space_state, space_state
from parllel.types import State


def environment_states(stepper: EnvStepper) -> list[State]:
    """Return what a checkpoint keeps of each environment.

    `missing` names what does not offer its state, `env` is None then.
    """
    return [_state(stepper, i) for i in range(len(stepper.envs))]


def _state(stepper: EnvStepper, i: int) -> State:
    prepared, env = stepper.prepared[i], stepper.envs[i]
    with stepper.named(i, "state"):
        # A user's environment or TrajInfo may hold what no file can, and the error should say which one.
        saved = env_state(env)
        missing = missing_env_state(env) if saved is None else None
        episode = stepper.trajs.state(i)
    return {
        "env": saved,
        "missing": missing,
        # An environment of a cage that waits may stand at the end of an episode, where others are never left.
        "waits": not stepper.reset_automatically,
        # None after the first reset: a seed that was used again would repeat the first episode.
        "seed": stepper.seeds[i],
        "needs_reset": bool(stepper.needs_reset[i]),
        # Of a reset ahead of time the observation, which is in no row yet.
        "prepared": None if prepared is None else [prepared[0]],
        "episode": episode,
        "action_space": space_state(stepper.action_spaces[i]),
    }


def load_environment_states(stepper: EnvStepper, states: Sequence[State], salt: int) -> None:
    """Take back what `environment_states` returned, into environments that were made alike.

    Where there is no state of an environment, it needs a reset afterwards, by a seed of its own that
    depends on `salt`, so that it does not play its first episodes again.

    Raises:
        ValueError: if it belongs to other environments, or other TrajInfos.
    """
    for i, state in enumerate(states):
        with stepper.named(i, "load_state"):
            _load_state(stepper, i, state, salt)
    # Counted once at the end: the flags were set here without the counter that `reset_one` keeps in step.
    stepper.n_waiting = int(np.count_nonzero(stepper.needs_reset))


def _load_state(stepper: EnvStepper, i: int, state: State, salt: int) -> None:
    # Both belong to the episode that is given up here, and would be taken for the loaded one's.
    stepper.prepared[i] = None
    stepper.trajs.begin(i)
    # Also where the environment itself has no state: random actions then go on as they would have.
    if state["action_space"] is not None:
        load_space_state(stepper.action_spaces[i], state["action_space"])
    if state["env"] is None:
        # From the first seed, as that of the next reset is usually None. Without the salt, the environment
        # would play its first episodes again.
        stepper.seeds[i] = salted(stepper.first_seeds[i], salt)
        stepper.needs_reset[i] = True
        return
    kinds, waits = ("resets by itself", "waits to be reset"), not stepper.reset_automatically
    if bool(state["waits"]) != waits:
        raise ValueError(
            f"expected the state of an environment that {kinds[waits]}, got that of one that "
            f"{kinds[not waits]}"
        )
    load_env_state(stepper.envs[i], state["env"])
    stepper.seeds[i] = state["seed"]
    stepper.needs_reset[i] = state["needs_reset"]
    if state["prepared"] is not None:
        stepper.prepared[i] = state["prepared"][0], {}  # no info: rows store none of a reset
    stepper.trajs.load_state(i, state["episode"])


def salted(seed: int | None, salt: int) -> int | None:
    """Return another seed for each `salt`; a missing one stays so."""
    return None if seed is None else int(np.random.SeedSequence([seed, salt]).generate_state(1)[0])
