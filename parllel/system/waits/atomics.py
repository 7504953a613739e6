"""Intrinsics for compiled functions: atomics, the pause instruction, clock and futex.

    load_word, store_word, add_word   words that other processes read and write     sequentially consistent
    peek, poke                        memory of this process alone                  plain
    futex                             sleeping and waking, by the kernel            on the address of a word

Words are int32 at raw addresses, aligned to their size. numba offers none of these, and its optimiser moves
ordinary loads out of loops. Linux on x86-64 and arm64 only. Imported only by `compiled.py`, as it imports
numba. numba's disk cache for that file does not notice changes of this one.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as _cgutils

from parllel.system.compilation import intrinsic

X86 = platform.machine().lower() in ("x86_64", "amd64")
_FUTEX_CALL = 202 if X86 else 98  # number of the system call, by architecture
# The clock of `time.monotonic`, so that setting the time of day does not affect waits.
_MONOTONIC = 1
cgutils: Any = _cgutils


_i32, _i64 = ir.IntType(32), ir.IntType(64)
_long = types.int64


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def load_word(typing: Any, address: Any) -> Any:
    """Load an int32, sequentially consistent."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Acquire is not enough: see `post` in compiled.py for a load that must not overtake a store.
        value = builder.load_atomic(_pointer(builder, args[0], _i32), "seq_cst", 4)
        return builder.sext(value, _i64)

    return _long(_long), generate


@intrinsic
def store_word(typing: Any, address: Any, value: Any) -> Any:
    """Store an int32, sequentially consistent."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Python integers arrive as int64; the caller checks that they fit.
        value = builder.trunc(args[1], _i32)
        builder.store_atomic(value, _pointer(builder, args[0], _i32), "seq_cst", 4)
        return context.get_dummy_value()

    return types.void(_long, _long), generate


@intrinsic
def add_word(typing: Any, address: Any, value: Any) -> Any:
    """Add to an int32 atomically."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.trunc(args[1], _i32)
        # Atomic, as several processes add to a word, and a separate load and store could lose an addition.
        builder.atomic_rmw("add", _pointer(builder, args[0], _i32), value, "seq_cst")
        return context.get_dummy_value()

    return types.void(_long, _long), generate


@intrinsic
def peek(typing: Any, address: Any) -> Any:
    """Load an int64 of private memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], _i64))

    return _long(_long), generate


@intrinsic
def poke(typing: Any, address: Any, value: Any) -> Any:
    """Store an int64 to private memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], _i64))
        return context.get_dummy_value()

    return types.void(_long, _long), generate


@intrinsic
def pause(typing: Any) -> Any:
    """Execute the pause instruction of a spin loop."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # It saves power, and yields to a hyperthread on the same core. Optional for correctness.
        if X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def now_ns(typing: Any) -> Any:
    """Read the monotonic clock."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # The C library reads this clock without entering the kernel.
        kind = ir.FunctionType(_i32, [_i32, _i64.as_pointer()])
        read = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        time = cgutils.alloca_once(builder, _i64, size=2)
        builder.call(read, [_i32(_MONOTONIC), time])
        seconds = builder.load(time)
        rest = builder.load(builder.gep(time, [_i64(1)]))
        return builder.add(builder.mul(seconds, _i64(1_000_000_000)), rest)

    return _long(), generate


@intrinsic
def futex(typing: Any, address: Any, operation: Any, value: Any, sleep_ns: Any) -> Any:
    """Call futex. `sleep_ns`, below a second, is the time-out, and unused when waking."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Through `syscall`, as the C library has no function for it.
        kind = ir.FunctionType(_i64, [_i64], var_arg=True)
        call = cgutils.get_or_insert_function(builder.module, kind, "syscall")
        address, operation, value, sleep_ns = args
        # Allocated once, at the entry of the function: inside a loop each round would use more stack.
        time = cgutils.alloca_once(builder, _i64, size=2)
        builder.store(_i64(0), time)
        builder.store(sleep_ns, builder.gep(time, [_i64(1)]))
        time = builder.ptrtoint(time, _i64)
        number, none = _i64(_FUTEX_CALL), _i64(0)
        # Errors need no handling, as callers check the word again whatever this returns.
        return builder.call(call, [number, address, operation, value, time, none, none])

    return _long(_long, _long, _long, _long), generate
