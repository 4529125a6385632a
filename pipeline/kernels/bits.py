"""Machine instructions numba has no name for, and tests on many bytes at once.

On eight in a register (SWAR, SIMD within a register); on sixty-four by vector instructions, whichever the processor
has, with one bit a byte as the answer.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it publishes no types
from numba.core import cgutils, types
from numba.extending import intrinsic as untyped_intrinsic

from pipeline.kernels.compiled import inlined

# Numba's stub types an intrinsic as what its implementation is called with, not as what a kernel calls.
intrinsic: Any = untyped_intrinsic

EVERY_01 = np.uint64(0x0101010101010101)
EVERY_7F = np.uint64(0x7F7F7F7F7F7F7F7F)
EVERY_80 = np.uint64(0x8080808080808080)

_BYTE = ir.IntType(8)
_BLOCK = ir.VectorType(_BYTE, 64)


@intrinsic
def load_uint64(typing_context: Any, data: Any, index: Any) -> Any:  # noqa: ARG001 - numba's signature for intrinsics
    """The bytes data[index : index + 8] as one little-endian uint64, at any alignment; the caller checks bounds."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]], inbounds=True)
        return builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.intp), codegen


@intrinsic
def store_uint64(typing_context: Any, data: Any, index: Any, value: Any) -> Any:  # noqa: ARG001 - numba's signature for intrinsics
    """Write a uint64 over data[index : index + 8], little-endian, at any alignment; the caller checks bounds."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]], inbounds=True)
        builder.store(arguments[2], builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, types.uint64), codegen


@intrinsic
def count_trailing_zeros(typing_context: Any, value: Any) -> Any:  # noqa: ARG001 - numba's signature for intrinsics
    """How many of the lowest bits of a uint64 are zero; 64 for 0."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def count_ones(typing_context: Any, value: Any) -> Any:  # noqa: ARG001 - numba's signature for intrinsics
    """How many bits of a uint64 are one, as a signed integer that can be added to any."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), codegen


@intrinsic
def bits_between(typing_context: Any, data: Any, index: Any, first: Any, last: Any) -> Any:  # noqa: ARG001 - numba's
    """A uint64 whose bit i says whether first <= data[index + i] <= last, for 64 bytes; the caller checks bounds.

    LLVM's vectors of 64 bytes: one comparison with AVX-512, two with AVX2, four with SSE2 or NEON.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = builder.load(_block(context, builder, signature.args[0], *arguments[:2]), align=1)
        low, high = (builder.trunc(argument, _BYTE) for argument in arguments[2:])
        above = builder.sub(block, _in_every(builder, low))
        inside = builder.icmp_unsigned("<=", above, _in_every(builder, builder.sub(high, low)))
        return builder.bitcast(inside, ir.IntType(64))

    return types.uint64(data, types.intp, types.intp, types.intp), codegen


@intrinsic
def add_where(typing_context: Any, data: Any, index: Any, bits: Any, amount: Any) -> Any:  # noqa: ARG001 - numba's
    """Add `amount` (modulo 256) to data[index + i] for every bit i set in the uint64 `bits`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _block(context, builder, signature.args[0], *arguments[:2])
        chosen = builder.bitcast(arguments[2], ir.VectorType(ir.IntType(1), 64))
        amounts = _in_every(builder, builder.trunc(arguments[3], _BYTE))
        added = builder.select(chosen, amounts, ir.Constant(_BLOCK, [0] * 64))
        builder.store(builder.add(builder.load(pointer, align=1), added), pointer, align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, types.uint64, types.intp), codegen


@intrinsic
def put_where(typing_context: Any, data: Any, index: Any, bits: Any, byte: Any) -> Any:  # noqa: ARG001 - numba's
    """Write `byte` to data[index + i] for every bit i set in the uint64 `bits`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _block(context, builder, signature.args[0], *arguments[:2])
        chosen = builder.bitcast(arguments[2], ir.VectorType(ir.IntType(1), 64))
        put = builder.select(
            chosen, _in_every(builder, builder.trunc(arguments[3], _BYTE)), builder.load(pointer, align=1)
        )
        builder.store(put, pointer, align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, types.uint64, types.intp), codegen


@intrinsic
def copy_block(typing_context: Any, data: Any, index: Any, target: Any, place: Any) -> Any:  # noqa: ARG001 - numba's
    """Copy 64 bytes from data[index] to target[place] on; the caller checks bounds."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = builder.load(_block(context, builder, signature.args[0], *arguments[:2]), align=1)
        builder.store(block, _block(context, builder, signature.args[2], *arguments[2:]), align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, target, types.intp), codegen


@intrinsic
def add_rows(typing_context: Any, target: Any, row: Any, source: Any, rows: Any, count: Any) -> Any:  # noqa: ARG001 - numba's
    """target[row] += source[rows[0]] + ... + source[rows[count - 1]], in this order, in one vector register.

    target and source: float32 with rows of 16; rows: int32. The caller checks bounds.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), 16)
        target_type, _, source_type, rows_type, _ = signature.args

        def start(array_type: Any, array: Any) -> Any:
            return context.make_array(array_type)(context, builder, array).data

        def pointer(array: Any, index: Any) -> Any:
            first = builder.mul(index, ir.Constant(index.type, 16))
            return builder.bitcast(builder.gep(array, [first], inbounds=True), vector.as_pointer())

        to, of = pointer(start(target_type, arguments[0]), arguments[1]), start(source_type, arguments[2])
        numbers = start(rows_type, arguments[3])
        total = cgutils.alloca_once(builder, vector)  # type: ignore[no-untyped-call]  # it publishes no types
        builder.store(builder.load(to, align=4), total)
        with cgutils.for_range(builder, arguments[4]) as loop:
            number = builder.load(builder.gep(numbers, [loop.index], inbounds=True))
            one = builder.load(pointer(of, builder.zext(number, ir.IntType(64))), align=4)
            builder.store(builder.fadd(builder.load(total), one), total)
        builder.store(builder.load(total), to, align=4)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, rows, types.intp), codegen


def _block(context: Any, builder: Any, array_type: Any, data: Any, index: Any) -> Any:
    """LLVM's pointer to the 64 bytes at data[index]."""
    array = context.make_array(array_type)(context, builder, data)
    return builder.bitcast(builder.gep(array.data, [index], inbounds=True), _BLOCK.as_pointer())


def _in_every(builder: Any, byte: Any) -> Any:
    """LLVM's vector of 64 times one byte."""
    nothing, places = ir.Constant(_BLOCK, ir.Undefined), ir.VectorType(ir.IntType(32), 64)
    one = builder.insert_element(nothing, byte, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(places, [0] * 64))


@inlined
def bytes_equal(eight: Any, byte: Any) -> Any:
    """0x80 in each of the eight bytes that equals `byte`, else 0x00; all uint64. Exact for every byte value."""
    difference = eight ^ (EVERY_01 * byte)
    return ~(((difference & EVERY_7F) + EVERY_7F) | difference) & EVERY_80
