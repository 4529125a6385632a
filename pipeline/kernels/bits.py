"""Machine instructions numba has no name for, and tests on eight bytes at once (SWAR: SIMD within a register)."""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it publishes no types
from numba.core import types
from numba.extending import intrinsic as untyped_intrinsic

from pipeline.kernels.compiled import inlined

# Numba's stub types an intrinsic as what its implementation is called with, not as what a kernel calls.
intrinsic: Any = untyped_intrinsic

EVERY_01 = np.uint64(0x0101010101010101)
EVERY_7F = np.uint64(0x7F7F7F7F7F7F7F7F)
EVERY_80 = np.uint64(0x8080808080808080)


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
    """How many bits of a uint64 are one."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), codegen


@inlined
def bytes_between(seven_bit: Any, first: Any, last: Any) -> Any:
    """0x80 in each byte of `seven_bit` (eight bytes below 0x80) that lies in first..last, else 0x00; also uint64s.

    Adding 0x80 - first carries a byte's top bit exactly when the byte is at least `first`; no carry leaves its byte.
    """
    at_least_first = seven_bit + EVERY_01 * (np.uint64(0x80) - first)
    above_last = seven_bit + EVERY_01 * (np.uint64(0x7F) - last)
    return at_least_first & ~above_last & EVERY_80


@inlined
def bytes_equal(eight: Any, byte: Any) -> Any:
    """0x80 in each of the eight bytes that equals `byte`, else 0x00; all uint64. Exact for every byte value."""
    difference = eight ^ (EVERY_01 * byte)
    return ~(((difference & EVERY_7F) + EVERY_7F) | difference) & EVERY_80
