"""Products of small matrices, for compiled functions.

A library multiplies large matrices faster, but calling it from Python takes as long as passing a hundred rows
through a small layer. Compiled functions call `multiply` without leaving themselves.

A tile of the result stays in vector registers while its products are added up, which compilers do not find by
themselves: they load and store each sum for every few products.

This module imports numba, so only compiled functions import it. numba's disk cache for their files does not
notice changes of this one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import types

from parllel.system.compilation import compiled, intrinsic


def _has_avx512() -> bool:
    try:
        return bool(get_host_cpu_features().get("avx512f"))
    except RuntimeError:  # nothing is known of this processor
        return False


COLUMNS = 32  # of a product: a multiple of it
# Of a tile. Its sums, and one row of factors, fill most of the 32 registers of 16 numbers, or 16 of 8.
_ROWS, _WIDTH = (8, 32) if _has_avx512() else (6, 16)
_LANES = 16  # of a vector here; compilers spread it over as many registers as it needs
_float, _int32, _int64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_vector = ir.VectorType(_float, _LANES)
_undefined = ir.Constant(_vector, ir.Undefined)
_zeros = ir.Constant(_vector, [0.0] * _LANES)
_first_lane = ir.Constant(ir.VectorType(_int32, _LANES), [0] * _LANES)


@intrinsic
def floats_at(typing: Any, address: Any) -> Any:
    """Return an address as a pointer to float32, for `numba.carray`."""
    pointer: Any = types.CPointer(types.float32)  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(types.intp), generate


class _Rows:
    """Rows of numbers, `distance` numbers apart, for a function that is being generated."""

    def __init__(self, builder: Any, first: Any, distance: Any) -> None:
        self._builder, self._first, self._distance = builder, first, distance

    def row(self, i: Any) -> Any:
        """Return the place of row i."""
        return self._builder.gep(self._first, [self._builder.mul(i, self._distance)])

    def vectors(self, i: Any) -> list[Any]:
        """Return the places of the vectors of row i of a tile."""
        lanes = (ir.Constant(_int64, lane) for lane in range(0, _WIDTH, _LANES))
        places = [self._builder.gep(self.row(i), [lane]) for lane in lanes]
        return [self._builder.bitcast(place, _vector.as_pointer()) for place in places]


def _tile_of(n_rows: int) -> Any:
    """Return an intrinsic that computes a tile of so many rows; its arguments are those of `multiply`."""
    rows = [ir.Constant(_int64, row) for row in range(n_rows)]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b, first, c = (builder.inttoptr(args[i], _float.as_pointer()) for i in (0, 3, 6, 8))
        a_row, a_k, b_k, n_k, first_row, c_row = (args[i] for i in (1, 2, 4, 5, 7, 9))
        start = builder.block
        head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
        builder.branch(head)

        builder.position_at_end(head)
        k = builder.phi(_int64)
        sums = [[builder.phi(_vector) for _ in range(0, _WIDTH, _LANES)] for _ in rows]
        builder.cbranch(builder.icmp_signed("<", k, n_k), body, end)

        builder.position_at_end(body)
        # Rows are aligned as single numbers are.
        factors = [builder.load(place, align=4) for place in _Rows(builder, b, b_k).vectors(k)]
        column = _Rows(builder, _Rows(builder, a, a_k).row(k), a_row)
        for row, row_sums in zip(rows, sums, strict=True):
            number = builder.load(column.row(row))
            spread = builder.insert_element(_undefined, number, ir.Constant(_int32, 0))
            spread = builder.shuffle_vector(spread, _undefined, _first_lane)
            for factor, sum_ in zip(factors, row_sums, strict=True):
                # "contract" allows one instruction for both, where the processor has it.
                product = builder.fmul(spread, factor, flags=["contract"])
                sum_.add_incoming(_zeros, start)
                sum_.add_incoming(builder.fadd(sum_, product, flags=["contract"]), body)
        k.add_incoming(ir.Constant(_int64, 0), start)
        k.add_incoming(builder.add(k, ir.Constant(_int64, 1)), body)
        builder.branch(head)

        builder.position_at_end(end)
        sources, targets = _Rows(builder, first, first_row), _Rows(builder, c, c_row)
        for row, row_sums in zip(rows, sums, strict=True):
            places = zip(row_sums, sources.vectors(row), targets.vectors(row), strict=True)
            for sum_, source, target in places:
                # Now and not at the start: sums of sums lose fewer digits.
                total = builder.fadd(builder.load(source, align=4), sum_)
                builder.store(total, target, align=4)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any,
        a: Any,
        a_row: Any,
        a_k: Any,
        b: Any,
        b_k: Any,
        n_k: Any,
        first: Any,
        first_row: Any,
        c: Any,
        c_row: Any,
    ) -> Any:
        return types.void(*[types.intp] * 10), generate

    return tile


_full, _pair, _single = _tile_of(_ROWS), _tile_of(2), _tile_of(1)


@compiled(f"({', '.join(['i8'] * 12)})", error_model="numpy")
def multiply(
    a: int,
    a_row: int,
    a_k: int,
    b: int,
    b_k: int,
    n_k: int,
    first: int,
    first_row: int,
    c: int,
    c_row: int,
    n_rows: int,
    n_columns: int,
) -> None:
    """Write first + a @ b to `c` [n_rows, n_columns], where `a` is [n_rows, n_k] and `b` [n_k, n_columns].

    Matrices are addresses of float32. `a_row` is the distance between neighbouring rows of `a`, `a_k` the one
    between neighbours in a row, both in numbers, and so on: columns of `b`, `first` and `c` lie side by side.
    A distance of 0 gives `first` equal rows. It may be `c`.  n_columns: a multiple of COLUMNS.

    The sums of a row do not depend on the other rows.
    """
    for j in range(0, 4 * n_columns, 4 * _WIDTH):
        i = 0
        while i < n_rows:
            place, source, target = a + 4 * i * a_row, first + 4 * i * first_row, c + 4 * i * c_row
            if i + _ROWS <= n_rows:
                _full(place, a_row, a_k, b + j, b_k, n_k, source + j, first_row, target + j, c_row)
                i += _ROWS
            elif i + 2 <= n_rows:
                _pair(place, a_row, a_k, b + j, b_k, n_k, source + j, first_row, target + j, c_row)
                i += 2
            else:
                _single(
                    place, a_row, a_k, b + j, b_k, n_k, source + j, first_row, target + j, c_row
                )
                i += 1
