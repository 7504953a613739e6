"""Single instructions and calls for compiled functions: atomics, the pause of a spin, clock and futex.

    load_word, store_word, add_word   words that other processes read and write     sequentially consistent
    peek, poke                        memory of this process alone                  plain
    futex                             sleeping and waking, by the kernel            on the address of a word

Words are int32 at raw addresses, aligned to their size. numba has nothing of this, and its optimiser moves
ordinary loads out of loops. Linux on x86-64 and arm64 only; imported by `compiled.py` alone, as it imports
numba. What numba keeps on disk for that file does not notice changes of this one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic as _intrinsic

X86 = platform.machine().lower() in ("x86_64", "amd64")
_FUTEX_CALL = 202 if X86 else 98  # numbers of the system call, which differ by architecture
# The clock of `time.monotonic`: a change of the time of day neither ends nor prolongs a wait.
_MONOTONIC = 1
cgutils: Any = _cgutils


def intrinsic(function: Callable[..., Any]) -> Any:
    """Do as numba's decorator; its types do not fit what is decorated."""
    return _intrinsic(function)


_i32, _i64 = ir.IntType(32), ir.IntType(64)
_long = types.int64


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def load_word(typing: Any, address: Any) -> Any:
    """Load an int32, sequentially consistent."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Not merely acquire: see `post` in compiled.py for the load that must not overtake a store.
        value = builder.load_atomic(_pointer(builder, args[0], _i32), "seq_cst", 4)
        return builder.sext(value, _i64)

    return _long(_long), generate


@intrinsic
def store_word(typing: Any, address: Any, value: Any) -> Any:
    """Store an int32, sequentially consistent."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Python's integers come as int64; that they fit is checked by the caller.
        value = builder.trunc(args[1], _i32)
        builder.store_atomic(value, _pointer(builder, args[0], _i32), "seq_cst", 4)
        return context.get_dummy_value()

    return types.void(_long, _long), generate


@intrinsic
def add_word(typing: Any, address: Any, value: Any) -> Any:
    """Add to an int32 atomically."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.trunc(args[1], _i32)
        # One instruction: several processes add to a word, and a load with a store after it could lose one.
        builder.atomic_rmw("add", _pointer(builder, args[0], _i32), value, "seq_cst")
        return context.get_dummy_value()

    return types.void(_long, _long), generate


@intrinsic
def peek(typing: Any, address: Any) -> Any:
    """Load an int64 of this process."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], _i64))

    return _long(_long), generate


@intrinsic
def poke(typing: Any, address: Any, value: Any) -> Any:
    """Store an int64 of this process."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], _i64))
        return context.get_dummy_value()

    return types.void(_long, _long), generate


@intrinsic
def pause(typing: Any) -> Any:
    """Tell the core that this is a spin."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # It saves power, and leaves the core to a thread that shares it. A spin is right without it, too.
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
        # Of the C library, which reads this clock without entering the kernel.
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
    """Call the kernel; a `sleep_ns` below a second is the time-out, unused when waking."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # By `syscall`, as the C library has no function for it.
        kind = ir.FunctionType(_i64, [_i64], var_arg=True)
        call = cgutils.get_or_insert_function(builder.module, kind, "syscall")
        address, operation, value, sleep_ns = args
        # Once, at the entry of the function: in a loop each round would take more of the stack.
        time = cgutils.alloca_once(builder, _i64, size=2)
        builder.store(_i64(0), time)
        builder.store(sleep_ns, builder.gep(time, [_i64(1)]))
        time = builder.ptrtoint(time, _i64)
        number, none = _i64(_FUTEX_CALL), _i64(0)
        # Callers look at the word again whatever this returns, so errors need no handling.
        return builder.call(call, [number, address, operation, value, time, none, none])

    return _long(_long, _long, _long, _long), generate
