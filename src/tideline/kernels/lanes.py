"""Memory by address inside kernels: loads, stores, and 32 bytes at a time.

Each of these is one to a few instructions. Addresses are checked in the checked job only
(checks.py): a kernel that uses them says how far it may read past the end of a text, and its
caller sees to that room.

A mask of 32 bytes has bit k for the byte at `address + k`. For little-endian machines,
as Arrow's buffers are.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tideline.kernels import checks, jit, jit_with

__all__ = [
    "LANES", "apart", "differences", "get8", "get16", "get32", "get64", "high_product", "hot",
    "leading_zeros", "non_digits", "put16", "put32", "put64",
    "reversed_bytes", "text_stops", "trailing_zeros",
]  # fmt: skip

LANES = 32

hot = jit_with(forceinline=True)  # vanishes at the call
apart = jit  # a call of its own if it is large: keeps hot loops small

_BYTE, _WORD, _WIDE = ir.IntType(8), ir.IntType(64), ir.IntType(128)
_VECTOR = ir.VectorType(_BYTE, LANES)


def _loader(bits: int) -> Any:
    """A load of `bits` at an address of any alignment, without a sign, as int64."""

    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            checks.guard(context, builder, args[0], bits // 8)
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            return value if bits == 64 else builder.zext(value, _WORD)

        return types.int64(types.int64), codegen

    return intrinsic(load)


def _storer(bits: int) -> Any:
    """A store of the low `bits` of an int64 at an address of any alignment."""

    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            checks.guard(context, builder, args[0], bits // 8)
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            value = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return intrinsic(store)


get8, get16, get32, get64 = _loader(8), _loader(16), _loader(32), _loader(64)
put16, put32, put64 = _storer(16), _storer(32), _storer(64)


def _vector(context: Any, builder: Any, address: Any) -> Any:
    checks.guard(context, builder, address, LANES)
    return builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=1)


def _all(value: int) -> Any:
    return ir.Constant(_VECTOR, [value] * LANES)


def _mask(builder: Any, found: Any) -> Any:
    return builder.zext(builder.bitcast(found, ir.IntType(LANES)), _WORD)


@intrinsic
def text_stops(typingctx: Any, address: Any) -> Any:
    """Mask of the bytes at which plain text stops: a quote, a backslash, a control
    character, a byte of a character that is not ASCII."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = _vector(context, builder, args[0])
        found = builder.icmp_signed("<", text, _all(0x20))  # signed: 0x80 and above too
        found = builder.or_(found, builder.icmp_signed("==", text, _all(0x22)))
        found = builder.or_(found, builder.icmp_signed("==", text, _all(0x5C)))
        return _mask(builder, found)

    return types.int64(types.int64), codegen


@intrinsic
def non_digits(typingctx: Any, address: Any) -> Any:
    """Mask of the bytes that are not `0` to `9`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.sub(_vector(context, builder, args[0]), _all(0x30))
        return _mask(builder, builder.icmp_unsigned(">", value, _all(9)))

    return types.int64(types.int64), codegen


@intrinsic
def differences(typingctx: Any, a: Any, b: Any) -> Any:
    """Mask of the bytes that differ between two addresses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b = _vector(context, builder, args[0]), _vector(context, builder, args[1])
        return _mask(builder, builder.icmp_signed("!=", a, b))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, mask: Any) -> Any:
    """The number of the lowest bit that is set; 64 when none is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen


@intrinsic
def reversed_bytes(typingctx: Any, word: Any) -> Any:
    """A word that sorts, without a sign, as its eight bytes do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.int64), codegen


@intrinsic
def leading_zeros(typingctx: Any, value: Any) -> Any:
    """How many bits above the highest one that is set; 64 when none is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def high_product(typingctx: Any, a: Any, b: Any) -> Any:
    """The upper 64 of the 128 bits of a product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.mul(builder.zext(args[0], _WIDE), builder.zext(args[1], _WIDE))
        return builder.trunc(builder.lshr(product, ir.Constant(_WIDE, 64)), _WORD)

    return types.uint64(types.uint64, types.uint64), codegen
