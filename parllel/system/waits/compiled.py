"""Compiled loads, stores and waits on raw addresses; Linux on x86-64 and arm64 only.

This module imports numba, so it is imported only by the first CompiledWait. All arguments are Python ints, as
numpy scalars would cost microseconds per call.

    line     word                       one process writes it, any number read it
             second word, lower half    number of sleepers; each adds and removes itself
             second word, upper half    the mark: number of `wake` calls; any process adds to it
             payload                    the writer of the word writes it before the word
    memory   usual wait, skipped spins, last mark seen: private to one process, so without atomics

    sleeper: sleepers += 1; word == seen? ; futex: sleep if word == seen      all sequentially
    poster:  word = value;  sleepers > 0? ; futex: wake all                   consistent

Either the poster sees the sleeper, or the sleeper sees the value. A process killed in its sleep remains
counted, which costs the poster a system call per post.
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

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # not the private variants, as processes share the words
_ALL = 0x7FFFFFFF
_LINE = 64
_CONTROL = 4  # offset in bytes of the second word
_ONE_WAKE = 1 << 16
_SLEEPERS = _ONE_WAKE - 1
_LOOKS = 16  # loads between two clock readings, each of which costs about as much as all of them
# The memory of a line, int64: usual wait, waits without a spin, mark of the last `wake` seen.
_SKIPPED, _MARK = 8, 16
MEMORY_WORDS = 3
# Outside int32, so that they differ from all words.
WOKEN: int = 1 << 40
UNCHANGED: int = 1 << 41


# These two keep the GIL: releasing it could let another thread run before the call returns.
@compiled("int64(int64)")
def load(address: int) -> int:
    """Return the word at an address."""
    # Sequential consistency includes acquire: a payload read afterwards is not older than the word.
    value: int = load_word(address)
    return value


@compiled("boolean(int64, int64)")
def post(address: int, value: int) -> bool:
    """Store the value and wake all waiting processes. Do nothing and return False unless it is an int32."""
    if value < -(1 << 31) or value >= (1 << 31):
        return False
    # Includes release: the payload, written by plain stores before the call, is visible with the word.
    store_word(address, value)
    # This load must not overtake that store, as release and acquire would allow: a sleeper that counted
    # itself in between would have seen the old word, and would not be woken.
    if load_word(address + _CONTROL) & _SLEEPERS:
        # Wakes all: several may sleep on a line, and each checks the word itself.
        futex(address, _FUTEX_WAKE, _ALL, 0)
    return True


@compiled("void(int64)")
def wake(address: int) -> None:
    """Change the mark and wake all waiting processes."""
    # An atomic addition, as several processes may wake a line, and sleepers count themselves in the same
    # word. It wraps after 65536 calls, which never happen within one wait.
    add_word(address + _CONTROL, _ONE_WAKE)
    # Called even if nobody sleeps, as wakes are rare.
    futex(address, _FUTEX_WAKE, _ALL, 0)


@compiled("int64(int64)")
def mark_of(address: int) -> int:
    """Return the mark, which `wake` changes."""
    mark: int = (load_word(address + _CONTROL) >> 16) & _SLEEPERS
    return mark


@compiled("int64(int64, int64)")
def spin_budget(memory: int, limit_ns: int) -> int:
    """Return how long to spin, as SpinBudget.next_ns does."""
    # The usual wait is private to this process, so plain loads and stores suffice.
    twice: int = 2 * peek(memory)
    if twice <= limit_ns:
        poke(memory + _SKIPPED, 0)
        return max(twice, limit_ns >> LEAST_SHIFT)
    skipped = peek(memory + _SKIPPED) + 1
    poke(memory + _SKIPPED, skipped)
    return 0 if skipped % PROBE_EVERY else limit_ns


@compiled("void(int64, int64, int64, boolean)")
def record(memory: int, limit_ns: int, spun_ns: int, changed: bool) -> None:
    """Record the outcome of a spin, as SpinBudget.record does."""
    usual: int = peek(memory)
    if not changed:
        poke(memory, usual + ((limit_ns - usual) >> FAILURE_SHIFT))
    elif 2 * usual > limit_ns:
        poke(memory, min(spun_ns, limit_ns // 2))
    else:
        poke(memory, usual + ((spun_ns - usual) >> SUCCESS_SHIFT))


@compiled("int64(int64, int64, int64, int64, int64)")
def _spin(address: int, seen: int, mark: int, began: int, stop: int) -> int:
    """Spin until the word or the mark changes, or until `stop`; return the time."""
    now: int = began
    # Atomic loads, as the optimiser would move ordinary ones out of the loop, which would never end.
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
    # A changed word takes precedence over a changed mark.
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
            # Checked again now that posters see this sleeper: one that posted just before did not wake it.
            if load_word(address) == seen and mark_of(address) == mark:
                # The kernel compares once more, under its lock, so a post from here on is not missed. A
                # `wake` may be missed, as it changes another word; it is noticed at the end of the slice.
                futex(address, _FUTEX_WAIT, seen, left_ns)
            add_word(address + _CONTROL, -1)
        value = load_word(address)
        if value != seen:
            return value
    # The mark is stored only here, so a `wake` ends exactly one wait, whether before or during it.
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
        `count` if all are. Otherwise the number of words that were, plus WOKEN if `wake` was called for the
        awaited line or its word is negative, plus UNCHANGED after `slice_ns`, or earlier.
    """
    stop: int = 0  # the clock is read only if there is anything to wait for
    # One after the other: all are needed, and the others proceed during the wait for the first.
    for i in range(count):
        at = address + _LINE * i
        word: int = load_word(at)
        while word != value:
            # A negative word is final: its writer has failed.
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
