"""Arrays over memory that Python owns, made from an address inside a kernel.

A kernel gets one integer, the address of a state array, and finds everything else
through it: a call with sixteen arrays costs 2.5 us, a call with one integer 0.2 us.
The lengths are the true ones, so bounds checking still means something.

Whoever passes an address keeps the array behind it alive during the call.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

__all__ = ["doubles", "halves", "octets", "prefetch", "words"]


def _view(element: Any, name: str, what: str) -> Any:
    """An intrinsic that makes an array of `element` from (address, count).

    An intrinsic leaves nothing behind in the compiled code but the address and the
    length; a function that returns an array would count references to it.
    """
    array = types.Array(element, 1, "C")

    def view(typingctx: Any, address: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = context.make_array(array)(context, builder)
            kind = context.get_data_type(element).as_pointer()
            size = context.get_constant(
                types.intp, context.get_abi_sizeof(context.get_data_type(element))
            )
            length = context.cast(builder, args[1], signature.args[1], types.intp)
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
