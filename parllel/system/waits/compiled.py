"""Compiled loads, stores and waits on raw addresses; Linux on x86-64 and arm64 only.

This module imports numba, so it is imported when the first CompiledWait is made. All arguments are
Python ints: numpy scalars would cost microseconds per call.

    line     word                       one process writes it, any number read it
             second word, lower half    how many sleep; each sleeper adds itself and takes itself off
             second word, upper half    the mark, how often `wake` was called; any process adds to it
             payload                    the writer of the word writes it before the word
    memory   usual wait, skipped spins, last mark seen: of one process alone, so without atomics

    sleeper: sleepers += 1; word == seen? ; futex: sleep if word == seen      all sequentially
    poster:  word = value;  sleepers > 0? ; futex: wake all                   consistent

Either the poster sees the sleeper, or the sleeper sees the value. A process killed in its sleep stays
counted, which costs the poster a system call each time.
"""

from __future__ import annotations

from parllel.system.compilation import compiled
from parllel.system.waits.atomics import (
    add_word,
    futex,
    load_word,
    now_ns,
    pause,
    peek,
    poke,
    store_word,
)
from parllel.system.waits.spin_budget import (
    FAILURE_SHIFT,
    LEAST_SHIFT,
    PROBE_EVERY,
    SUCCESS_SHIFT,
)

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # not the private kind: processes share the words
_ALL = 0x7FFFFFFF
_LINE = 64
_CONTROL = 4  # bytes from the word to who sleeps on it
_ONE_WAKE = 1 << 16
_SLEEPERS = _ONE_WAKE - 1
_LOOKS = 16  # between two looks at the clock, which costs about as much as all of these
# The memory of a line, int64: usual wait, waits without a spin, mark of the last `wake` seen.
_SKIPPED, _MARK = 8, 16
MEMORY_WORDS = 3
# Outside of int32, so that they cannot be the value of a word.
WOKEN: int = 1 << 40
UNCHANGED: int = 1 << 41


# These two keep the GIL: to give it away would let another thread run before the call returns.
@compiled("int64(int64)")
def load(address: int) -> int:
    """Return the word at an address."""
    # Sequentially consistent includes acquire: the payload that is read next is not older than the word.
    value: int = load_word(address)
    return value


@compiled("boolean(int64, int64)")
def post(address: int, value: int) -> bool:
    """Write the word and wake the sleepers; return False, having done nothing, if it has no room."""
    if value < -(1 << 31) or value >= (1 << 31):
        return False
    # Includes release: the payload, written by plain stores before the call, is visible with the word.
    store_word(address, value)
    # This load must not overtake that store, as it may with release and acquire alone: a sleeper that
    # counted itself in between would be missed, having seen the old word.
    if load_word(address + _CONTROL) & _SLEEPERS:
        # All: several may sleep on a line, and each looks for itself whether it is done.
        futex(address, _FUTEX_WAKE, _ALL, 0)
    return True


@compiled("void(int64)")
def wake(address: int) -> None:
    """Change the mark and wake the sleepers."""
    # One atomic addition: several processes may wake a line, and sleepers count themselves in the same word.
    # It wraps after 65536 calls, all within one wait, which does not happen.
    add_word(address + _CONTROL, _ONE_WAKE)
    # Without looking whether anyone sleeps, as it is rare.
    futex(address, _FUTEX_WAKE, _ALL, 0)


@compiled("int64(int64)")
def mark_of(address: int) -> int:
    """Return what `wake` changes."""
    mark: int = (load_word(address + _CONTROL) >> 16) & _SLEEPERS
    return mark


@compiled("int64(int64, int64)")
def spin_budget(memory: int, limit_ns: int) -> int:
    """Return how long to spin, as SpinBudget.next_ns does."""
    # The usual wait is this process's own, for this line: plain loads and stores do.
    twice: int = 2 * peek(memory)
    if twice <= limit_ns:
        poke(memory + _SKIPPED, 0)
        return max(twice, limit_ns >> LEAST_SHIFT)
    skipped = peek(memory + _SKIPPED) + 1
    poke(memory + _SKIPPED, skipped)
    return 0 if skipped % PROBE_EVERY else limit_ns


@compiled("void(int64, int64, int64, boolean)")
def record(memory: int, limit_ns: int, spun_ns: int, changed: bool) -> None:
    """Take in how a spin went, as SpinBudget.record does."""
    usual: int = peek(memory)
    if not changed:
        poke(memory, usual + ((limit_ns - usual) >> FAILURE_SHIFT))
    elif 2 * usual > limit_ns:
        poke(memory, min(spun_ns, limit_ns // 2))
    else:
        poke(memory, usual + ((spun_ns - usual) >> SUCCESS_SHIFT))


@compiled("int64(int64, int64, int64, int64, int64)")
def _spin(address: int, seen: int, mark: int, began: int, stop: int) -> int:
    """Look at the word until it or the mark changes or the time is over; return the time then."""
    now: int = began
    # Atomic loads: the optimiser would take an ordinary one out of the loop, which then never ends.
    while now < stop and load_word(address) == seen and mark_of(address) == mark:
        for _ in range(_LOOKS):
            if load_word(address) != seen:
                break
            pause()
        now = now_ns()
    return now


@compiled("int64(int64, int64, int64, int64, int64)", nogil=True)
def wait_slice(address: int, seen: int, memory: int, limit_ns: int, slice_ns: int) -> int:
    """Wait for the word, spinning first if `limit_ns` is not 0, less than a second in all.

    Returns:
        The word if it is not `seen`; WOKEN if `wake` was called since the last such return; UNCHANGED
        after `slice_ns`, or earlier if the sleep was interrupted.
    """
    # A word that has changed wins over a mark that has: what was waited for is there.
    value: int = load_word(address)
    if value != seen:
        return value
    mark = peek(memory + _MARK)
    if slice_ns > 0 and mark_of(address) == mark:
        now = began = now_ns()
        budget = min(spin_budget(memory, limit_ns), slice_ns) if limit_ns > 0 else 0
        if budget > 0:
            now = _spin(address, seen, mark, began, began + budget)
            record(memory, limit_ns, now - began, load_word(address) != seen)
        left_ns = began + slice_ns - now
        if left_ns > 0 and load_word(address) == seen and mark_of(address) == mark:
            add_word(address + _CONTROL, 1)
            # Again, now that posters see this process: one that posted just before did not wake it.
            if load_word(address) == seen and mark_of(address) == mark:
                # The kernel compares once more, under its lock, so a post from here on is not missed. A
                # `wake` from here on may be: it changes another word. The end of the slice notices it.
                futex(address, _FUTEX_WAIT, seen, left_ns)
            add_word(address + _CONTROL, -1)
        value = load_word(address)
        if value != seen:
            return value
    # The mark is stored here alone: a `wake` ends one wait, whether it came before it or during it.
    woken = mark_of(address)
    if woken == mark:
        return UNCHANGED
    poke(memory + _MARK, woken)
    return WOKEN


@compiled("int64(int64, int64, int64, int64, int64, int64)", nogil=True)
def wait_each_slice(
    address: int, count: int, value: int, memory: int, limit_ns: int, slice_ns: int
) -> int:
    """Wait until `count` words are all `value`, less than a second in all.

    address, memory: of the first line; the others follow.

    Returns:
        `count`; WOKEN if `wake` was called for the line that was waited for, or its word is negative, plus
        how many were right; UNCHANGED plus that after `slice_ns`, or earlier.
    """
    stop: int = 0  # the clock is read only if something is to be waited for
    # One after the other, as all have to come: the time for the first is time for the others as well.
    for i in range(count):
        at = address + _LINE * i
        word: int = load_word(at)
        while word != value:
            # Its writer has failed: what was to come will not, so there is nothing to wait for.
            if word < 0:
                return WOKEN + i
            now = now_ns()
            if stop == 0:
                stop = now + slice_ns
            found = wait_slice(at, word, memory + 8 * MEMORY_WORDS * i, limit_ns, stop - now)
            if found >= WOKEN:
                return found + i
            word = found
    return count
