"""Arrays over memory that Python owns, made from an address inside a kernel.

A kernel gets one integer, the address of a state array, and finds everything else
through it: a call with sixteen arrays costs 2.5 us, a call with one integer 0.2 us.
The lengths are the true ones, or FOREVER where a kernel does not know; in the checked
job all of them are looked up (checks.py), so bounds checking sees every access. An index
must not be negative: numba's own arrays count those from the end, which costs a test
at every access (a tenth of a batch's time).

Whoever passes an address keeps the array behind it alive during the call.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import ArrayModel
from numba.extending import intrinsic, lower_builtin, register_model
from numba.np.arrayobj import load_item, populate_array, store_item

from tideline.kernels import checks

__all__ = [
    "doubles", "halves", "octets", "prefetch", "put_word", "singles", "word_at", "words",
]  # fmt: skip


class Plain(types.Array):
    """An array that is indexed from its start only."""


register_model(Plain)(ArrayModel)


def _item(context: Any, builder: Any, kind: Any, array: Any, index_type: Any, index: Any) -> Any:
    made = context.make_array(kind)(context, builder, array)
    where = context.cast(builder, index, index_type, types.intp)
    if context.enable_boundscheck:
        cgutils.do_boundscheck(context, builder, where, builder.extract_value(made.shape, 0), 0)
    return builder.gep(made.data, [where])


@lower_builtin(operator.getitem, Plain, types.Integer)
def _get(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind, index = signature.args
    return load_item(context, builder, kind, _item(context, builder, kind, args[0], index, args[1]))


@lower_builtin(operator.setitem, Plain, types.Integer, types.Any)
def _set(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind, index, given = signature.args
    where = _item(context, builder, kind, args[0], index, args[1])
    value = context.cast(builder, args[2], given, kind.dtype)
    store_item(context, builder, kind, value, where)
    return context.get_dummy_value()


def _view(element: Any, name: str, what: str) -> Any:
    """An intrinsic that makes an array of `element` from (address, count).

    An intrinsic leaves nothing behind in the compiled code but the address and the
    length; a function that returns an array would count references to it.
    """
    array = Plain(element, 1, "C", name=f"plain({element})")

    def view(typingctx: Any, address: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = context.make_array(array)(context, builder)
            kind = context.get_data_type(element).as_pointer()
            item = context.get_abi_sizeof(context.get_data_type(element))
            size = context.get_constant(types.intp, item)
            length = context.cast(builder, args[1], signature.args[1], types.intp)
            length = checks.length(context, builder, args[0], length, item)
            populate_array(
                made,
                data=builder.inttoptr(args[0], kind),
                shape=[length],
                strides=[size],
                itemsize=size,
                meminfo=None,
            )
            return made._getvalue()

        return array(types.int64, types.int64), codegen

    view.__name__ = view.__qualname__ = name
    view.__doc__ = what
    return intrinsic(view)


words = _view(types.int64, "words", "`count` int64 at `address`.")
halves = _view(types.int32, "halves", "`count` int32 at `address`.")
octets = _view(types.uint8, "octets", "`count` bytes at `address`.")
doubles = _view(types.float64, "doubles", "`count` float64 at `address`.")
singles = _view(types.float32, "singles", "`count` float32 at `address`.")


@intrinsic
def word_at(typingctx: Any, data: Any, index: Any) -> Any:
    """The eight bytes of `data` from `index` on as one word, wherever they begin."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        where = _byte_at(context, builder, signature, args)
        word = builder.load(where)
        word.align = 1
        return word

    return types.int64(data, types.int64), codegen


@intrinsic
def put_word(typingctx: Any, data: Any, index: Any, word: Any) -> Any:
    """Write a word over the eight bytes of `data` from `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        where = _byte_at(context, builder, signature, args)
        builder.store(args[2], where, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), codegen


def _byte_at(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    if context.enable_boundscheck:
        limit = builder.extract_value(array.shape, 0)
        for end in (args[1], builder.add(args[1], ir.IntType(64)(7))):
            cgutils.do_boundscheck(context, builder, end, limit, 0)
    return builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(64).as_pointer())


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Begin to load the cache line at an address; harmless whatever the address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        where = builder.inttoptr(args[0], pointer)
        builder.call(function, [where, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen
