"""What a checkpoint keeps of the environments of a vector environment, between two rows.

SyncVectorEnv           the state of each of its environments, as of single ones
other                   one state of all, in the record of the first; where the environment offers it
what the cage adds      as for single environments
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from parllel.cages.native.native_trees import copied
from parllel.cages.native.vector_stepper import VectorStepper
from parllel.cages.spaces import example_of
from parllel.cages.stepping.resting_env import awake_envs, rest, wake_all
from parllel.cages.stepping.saved_environments import salted
from parllel.envs.states.env_state import env_state, load_env_state, missing_env_state
from parllel.envs.states.random_state import load_space_state, space_state
from parllel.errors import add_note
from parllel.types import State

_SYNC = "gymnasium.vector.sync_vector_env.SyncVectorEnv"


def vector_states(stepper: VectorStepper) -> list[State]:
    """Return what a checkpoint keeps of each environment.

    `missing` names what does not offer its state, `env` is None then.
    """
    envs = _single_envs(stepper)
    try:
        whole = None if envs else env_state(stepper.native.env)
        missing = None if envs or whole is not None else missing_env_state(stepper.native.env)
    except Exception as error:
        add_note(error, f"in {stepper.name}, during state")
        raise
    states = []
    for i in range(stepper.n):
        saved: State | None = None
        try:
            if envs:
                saved = env_state(envs[i])
                missing = missing_env_state(envs[i]) if saved is None else None
            elif whole is not None:
                # Once for all of them, with what shows where it belongs.
                saved = {"of": stepper.n, "environment": i, "all": None if i else whole}
            episode = stepper.trajs.state(i)
        except Exception as error:
            add_note(error, f"in {stepper.name_of(i)}, during state")
            raise
        states.append(
            {
                "env": saved,
                "missing": missing,
                "waits": not stepper.reset_automatically,
                "seed": stepper.seeds[i],
                "needs_reset": bool(stepper.needs_reset[i]),
                "prepared": [stepper.begun[i]] if i in stepper.begun else None,
                "episode": episode,
                "action_space": space_state(stepper.action_spaces[i]),
            }
        )
    return states


def load_vector_states(stepper: VectorStepper, states: Sequence[State], salt: int) -> None:
    """Take back what `vector_states` returned, into environments that were made alike.

    Where there is no state of an environment, it needs a reset afterwards, by a seed of its own that depends
    on `salt`.

    Raises:
        ValueError: if it belongs to other environments, or other TrajInfos.
    """
    envs = _single_envs(stepper)
    stepper.begun.clear()
    if envs:
        wake_all(stepper.native.core)
        # What a partial reset returns for the others, which is not looked at.
        zeros = example_of(stepper.spaces.observation)
        stepper.native.env._env_obs = [copied(zeros) for _ in envs]
    for i, state in enumerate(states):
        try:
            _load_state(stepper, i, state, salt, envs[i] if envs else None)
        except Exception as error:
            add_note(error, f"in {stepper.name_of(i)}, during load_state")
            raise
    stepper.n_waiting = int(np.count_nonzero(stepper.needs_reset))
    if all(state["env"] is None for state in states):
        stepper.remake()


def _load_state(stepper: VectorStepper, i: int, state: State, salt: int, env: Any) -> None:
    stepper.trajs.begin(i)
    # Also where the environment itself has no state: random actions then go on as they would have.
    if state["action_space"] is not None:
        load_space_state(stepper.action_spaces[i], state["action_space"])
    saved = state["env"]
    if saved is None:
        # Without the salt, the environment would play its first episodes again.
        stepper.seeds[i] = salted(stepper.first_seeds[i], salt)
        stepper.needs_reset[i] = True
        return
    kinds, waits = ("resets by itself", "waits to be reset"), not stepper.reset_automatically
    if bool(state["waits"]) != waits:
        raise ValueError(
            f"expected the state of an environment that {kinds[waits]}, got that of one that "
            f"{kinds[not waits]}"
        )
    if env is not None:
        if "of" in saved:
            raise ValueError(
                f"expected the state of a single environment, got that of {saved['of']} in one"
            )
        load_env_state(env, saved)
        if state["prepared"] is not None:
            stepper.begun[i] = state["prepared"][0]
    else:
        _load_whole(stepper, i, saved)
    stepper.seeds[i] = state["seed"]
    stepper.needs_reset[i] = state["needs_reset"]
    if env is not None and state["needs_reset"]:
        rest(stepper.native.core, i)
    stepper.trajs.load_state(i, state["episode"])


def _load_whole(stepper: VectorStepper, i: int, saved: State) -> None:
    if (saved.get("of"), saved.get("environment")) != (stepper.n, i):
        came = (
            f"number {saved['environment']} of {saved['of']}" if "of" in saved else "a single one"
        )
        raise ValueError(
            f"expected the state of number {i} of {stepper.n} environments that are stepped together, got "
            f"that of {came}; resume with as many environments in each process as before"
        )
    if i == 0:
        load_env_state(stepper.native.env, saved["all"])


def _single_envs(stepper: VectorStepper) -> list[Any]:
    env = stepper.native.env
    # Exactly this class, and without wrappers: others may keep more than their environments do.
    if f"{type(env).__module__}.{type(env).__qualname__}" != _SYNC:
        return []
    return awake_envs(env)
