"""Reference for the rows of a cage of a native vector environment, from the environment's own methods.

`simulate_together` knows nothing of cages: it steps an environment of its own, and calls its `reset` where an
episode has ended, unless the environment has done that in the same step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from parllel.testing.cages.row_reference import BatchRecord
from parllel.types import Tree

# Resets those of a mask; returns their observations, [how many there are, ...].
ResetSome: TypeAlias = Callable[[Any, Any], Tree]


def simulate_together(
    env: Any,
    observation: Tree,
    batches: Sequence[Sequence[Sequence[Any]]],
    mode: str,
    reset_some: ResetSome,
    *,
    automatic: bool = True,
    idle_action: Any = None,
) -> list[list[BatchRecord]]:
    """Return the expected batches of each column for these actions.

    env: has just been reset, to `observation`.  batches: actions by batch, row and column.
    mode: its autoreset mode.  idle_action: what those that wait are stepped with.
    """
    n = env.num_envs
    now = [cell(observation, i) for i in range(n)]
    columns: list[list[BatchRecord]] = [[] for _ in range(n)]
    waits, rewards = np.zeros(n, bool), [[] for _ in range(n)]  # type: ignore[var-annotated]
    for rows in batches:
        # Between batches, as a sampler does: those that wait are reset, and the others go on.
        if waits.any():
            _put(now, waits, reset_some(env, waits))
            waits[:] = False
        records = [BatchRecord([now[i]], needs_reset=[False]) for i in range(n)]
        for t, row in enumerate(rows):
            # The vector environment always steps all of its environments, and `idle_action` goes to
            # those that wait. Their results are dropped below.
            actions = [idle_action if waits[i] else row[i] for i in range(n)]
            stacked = np.array(actions, env.single_action_space.dtype)
            # Copied whole: the next step may overwrite every array and dict that this one returned.
            result, reward, terminated, truncated, info = copy.deepcopy(env.step(stacked))
            now = [cell(result, i) for i in range(n)]
            ended = terminated | truncated
            # In SameStep the observation is that of the next episode; the info has the last one.
            final = {
                i: cell(info["final_obs"], i) if mode == "SameStep" else now[i]
                for i in np.flatnonzero(ended).tolist()
            }
            # In Disabled no ended environment may be stepped, so waiting ones are reset too, each
            # time that an episode which nobody records is over. In NextStep the next step would be
            # a reset, and is forestalled only where resets are automatic.
            if ended.any() and (mode == "Disabled" or (automatic and mode == "NextStep")):
                fresh = [*now]
                _put(fresh, ended, reset_some(env, ended))
                now = fresh if automatic else now
            for i, record in enumerate(records):
                # By the flags before this row: an environment that ends in it has made its step.
                wait, over = bool(waits[i]), bool(ended[i]) and not waits[i]
                if wait:
                    now[i] = np.zeros_like(now[i])
                else:
                    rewards[i].append(float(reward[i]))
                if over:
                    _record_end(record, t, final[i], rewards[i])
                    now[i] = now[i] if automatic else final[i]
                record.observations.append(now[i])
                record.rewards.append(0.0 if wait else float(reward[i]))
                record.terminated.append(over and bool(terminated[i]))
                record.truncated.append(over and bool(truncated[i]))
                record.done.append(over)
                record.infos.append(None)
                record.needs_reset.append(not automatic and (wait or over))
            if not automatic:
                waits |= ended
        for column, record in zip(columns, records, strict=True):
            column.append(record)
    return columns


def _record_end(record: BatchRecord, t: int, final: Tree, rewards: list[float]) -> None:
    record.final.append((t, final))
    # Without a discount, which the contract of single environments tests.
    record.trajs.append((len(rewards), sum(rewards), sum(rewards)))
    rewards.clear()


def cell(stack: Tree, i: int) -> Tree:
    """Return a copy of the part of one environment."""
    if isinstance(stack, dict):
        return {name: cell(part, i) for name, part in stack.items()}
    return np.array(stack[i])


def _put(cells: list[Tree], mask: Any, fresh: Tree) -> None:
    for k, i in enumerate(np.flatnonzero(mask).tolist()):
        cells[i] = cell(fresh, k)


def masked_reset(env: Any, mask: Any) -> Tree:
    """Reset some environments by gymnasium's convention."""
    # A new mask each time, as environments pop it from the options or keep it.
    observation = copy.deepcopy(env.reset(options={"reset_mask": mask.copy()})[0])
    # EnvPool returns those alone.
    return observation[mask] if len(observation) == len(mask) else observation


def reset_carts(env: Any, mask: Any) -> Tree:
    """Reset some of a CartPoleVectorEnv, as its own next step would."""
    # Its own next step resets what `prev_done` marks, but also moves all the other carts. So a copy
    # takes the step, and only the carts of the mask are taken over.
    other = copy.deepcopy(env)
    other.prev_done = mask.copy()
    observation = other.step(np.zeros(len(mask), env.action_space.dtype))[0]
    env.state[:, mask] = other.state[:, mask]
    env.steps[mask] = 0
    env.prev_done[mask] = False
    # The copy drew the new states, and the environment's own resets continue from there.
    env.np_random.bit_generator.state = other.np_random.bit_generator.state
    return observation[mask]
