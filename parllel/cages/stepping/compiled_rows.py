"""Compiled loops that step compiled environments and write their results to rows of a batch.

Importing this module imports numba. Nothing is checked here: `CompiledEnvironments` does so. The loops
release the GIL, and are compiled once per environment class, with its functions inlined.

    for each environment                    reads                    writes, in column lo + i
        action of row k                     action[k]
        step, and at an end reset           states, counts, rngs     states, counts, waiting
        observe                                                      observation[k + 1]
                                                                     reward, terminated, truncated, done[k]
        the statistics of the episodes                               kept rewards, events
        the last observation                                         finals, final_places

The arrays are the memory of whole fields; words say at which row the batch begins in each of them. An error
of an environment leaves its number and row in the words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

import numpy as np
from numba.typed import List

from parllel.arrays.compiled_policy import BLOCK, step_categorical, step_gaussian
from parllel.system.compilation import compiled

# Positions in the array of words. The last three are results.
OBSERVATION, ACTION, REWARD, FLAGS, KEPT, ROW, LO, SEEN_LO, LIMIT, AUTOMATIC = range(10)
FIRST_ACTION, N_ACTIONS, N_EVENTS, ENVIRONMENT, FAILED_ROW = range(10, 15)
N_WORDS = 15
# Where the actions come from: the batch, or a policy, by the function that draws them.
GIVEN, CATEGORICAL, GAUSSIAN = "given", "categorical", "gaussian"
_POLICIES: dict[str, Any] = {CATEGORICAL: step_categorical, GAUSSIAN: step_gaussian}

_compiled = compiled(whole=True, nogil=True, error_model="numpy")

# Replaced by the functions of an environment, and by what takes or draws actions, see `_with`.
_reset: Any = None
_step: Any = None
_observe: Any = None
_take: Any = None
_act: Any = None
_run_rows: Any = None


def make_run(reset: Any, step: Any, observe: Any, *, discrete: bool) -> Callable[..., int]:
    """Return a function that steps environments `first` to `last` through rows `start` to `stop`.

    discrete: whether an action is one whole number; otherwise it is an array.

    See `make_loop` for the other arguments. The loops share it, as most of their compilation is this.
    """
    take = _take_number if discrete else _take_array
    return _with(_run, _reset=reset, _step=step, _observe=observe, _take=take)


def make_loop(run: Callable[..., int], *, source: str) -> Callable[..., int]:
    """Return a function that steps all environments through some rows.

    run: see `make_run`.
    source: GIVEN for actions from the batch, or the kind of the policy.

    Arguments of the function; `B` is the batch's number of columns and n that of the environments:

        n_rows: number of rows.
        policy: the arguments of the policy's function after `stop`; () for GIVEN.
        action: [rows, B, ...].
        bounds: low, high and scratch for one action that is an array.
        envs: states [n], counts [n] and waiting [n].
        rngs: generators, a typed list.
        observation: [rows, B, ...].
        results: reward, terminated, truncated, done [rows, B], and kept rewards [kept rows, n].
        ends: events [e, 3], finals [e, ...] and final_places [e, 3], for e ends of episodes.
        words: see above.

    It returns 1 at an action outside of the space, otherwise 0. Those of a Box are clipped.
    """
    if source == GIVEN:
        return _with(_loop, _run_rows=run)
    return _with(_loop_with_policy, _run_rows=run, _act=_POLICIES[source])


def list_of(rngs: Sequence[np.random.Generator]) -> Any:
    """Return a typed list of generators."""
    # numba's own constructor compiles what it needs in each process, for half a second.
    made = _begin(rngs[0])
    for rng in rngs[1:]:
        _append(made, rng)
    return made


@compiled()
def _begin(first: Any) -> Any:
    made = List()
    made.append(first)
    return made


@compiled()
def _append(rngs: Any, rng: Any) -> None:
    rngs.append(rng)


def _run(
    first: int,
    last: int,
    start: int,
    stop: int,
    action: Any,
    bounds: Any,
    envs: Any,
    rngs: Any,
    observation: Any,
    results: Any,
    ends: Any,
    words: Any,
) -> int:
    # One function for many steps: each call counts the references to a dozen arrays, which takes longer than
    # a step.
    states, counts, waiting = envs
    reward, terminated, truncated, done, kept = results
    events, finals, final_places = ends
    lo, row, flags = words[LO], words[REWARD], words[FLAGS]
    next_row, seen_lo = words[OBSERVATION] + 1, words[SEEN_LO]
    kept_row, action_row, limit = words[KEPT], words[ACTION], words[LIMIT]
    for i in range(first, last):
        state, rng, column = states[i], rngs[i], lo + i
        words[ENVIRONMENT] = i
        for k in range(start, stop):
            out = observation[next_row + k, seen_lo + i]
            if waiting[i]:
                cells = out.flat
                for j in range(out.size):
                    cells[j] = 0
                reward[row + k, column] = 0
                kept[kept_row + k, i] = 0
                terminated[flags + k, column] = False
                truncated[flags + k, column] = False
                done[flags + k, column] = False
                continue
            words[FAILED_ROW] = k
            chosen, wrong = _take(action, action_row + k, column, bounds, words)
            if wrong:
                return 1
            gained, ends_here = _step(state, chosen, rng)
            counts[i] += 1
            cut = 0 < limit <= counts[i]
            reward[row + k, column] = gained
            kept[kept_row + k, i] = gained
            terminated[flags + k, column] = ends_here
            truncated[flags + k, column] = cut
            done[flags + k, column] = ends_here or cut
            _observe(state, out)
            if not (ends_here or cut):
                continue
            e = words[N_EVENTS]
            events[e, 0], events[e, 1], events[e, 2] = kept_row + k + 1, i, 1
            # Not an assignment of arrays, whose check of shapes takes three times as long to compile as
            # all of this.
            final, cells = finals[e].flat, out.flat
            for j in range(out.size):
                final[j] = cells[j]
            final_places[e, 0], final_places[e, 1], final_places[e, 2] = words[ROW] + k, i, cut
            # Before a reset that may raise: the step was made.
            words[N_EVENTS] = e + 1
            if words[AUTOMATIC]:
                counts[i] = 0
                _reset(state, rng)
                _observe(state, out)
            else:
                waiting[i] = True
    return 0


def _loop(
    n_rows: int,
    policy: Any,
    action: Any,
    bounds: Any,
    envs: Any,
    rngs: Any,
    observation: Any,
    results: Any,
    ends: Any,
    words: Any,
) -> int:
    n = len(envs[2])
    wrong: int = _run_rows(
        0, n, 0, n_rows, action, bounds, envs, rngs, observation, results, ends, words
    )
    return wrong


def _loop_with_policy(
    n_rows: int,
    policy: Any,
    action: Any,
    bounds: Any,
    envs: Any,
    rngs: Any,
    observation: Any,
    results: Any,
    ends: Any,
    words: Any,
) -> int:
    n, lo = len(envs[2]), words[LO]
    # In the policy's own blocks, so that records and observations stay in the cache.
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        for k in range(n_rows):
            _act(words[ROW] + k, lo + first, lo + last, *policy)
            _run_rows(
                first,
                last,
                k,
                k + 1,
                action,
                bounds,
                envs,
                rngs,
                observation,
                results,
                ends,
                words,
            )
    return 0


def _with(function: Any, **others: Any) -> Callable[..., int]:
    """Compile a function of this module, with other functions under some of the names that it refers to."""
    # As globals: functions that close over compiled ones are not found again in numba's cache.
    made: Any = FunctionType(function.__code__, {**globals(), **others}, function.__name__)
    return cast(Callable[..., int], _compiled(made))


@_compiled
def _take_number(action: Any, row: int, column: int, bounds: Any, words: Any) -> tuple[int, bool]:
    chosen = np.int64(action[row, column])
    past = words[FIRST_ACTION] + words[N_ACTIONS]
    return chosen, not words[FIRST_ACTION] <= chosen < past


@_compiled
def _take_array(action: Any, row: int, column: int, bounds: Any, words: Any) -> tuple[Any, bool]:
    low, high, scratch = bounds
    given, taken, lowest, highest = action[row, column].flat, scratch.flat, low.flat, high.flat
    outside = False
    # NaN stays NaN, as with np.clip.
    for j in range(scratch.size):
        value = given[j]
        if value < lowest[j]:
            value, outside = lowest[j], True
        elif value > highest[j]:
            value, outside = highest[j], True
        taken[j] = value
    # A Box has no number of actions.
    return scratch, outside and words[N_ACTIONS] > 0
