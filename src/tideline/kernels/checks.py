"""Looking up every address that a kernel reads or writes, in the checked job.

numba's bounds checks know arrays. What a kernel reaches by an address has no array, or one that was
made from the address inside the kernel (views.py). In the checked job (`NUMBA_BOUNDSCHECK=1`) the
intrinsics that load, store or make such an array call one of two functions first, which search the
ranges that Python has registered (tideline/addresses.py):

    look_up(address, size)        0 when the bytes lie in one range, else -1
    measure(address, count, item) how many elements there are: `count` when they lie in one range,
                                  what its range has when the count is FOREVER, else -1

After a -1 the kernel raises `BadAddress` with the name of the function it is in; the call from
Python adds address and kernel. In all other processes `guard` and `length` add nothing: the
machine code is what it would be without this module.

Compiled kernels are kept (kernels/cache.py), so they name both functions and the linker finds them.
Checked code has a folder of its own there. Safe from any thread.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir
from numba import cfunc, types
from numba.core import cgutils
from numba.extending import intrinsic

from tideline.addresses import CHANGES, CHECKED, LENT, SLOTS, BadAddress, ranges

__all__ = ["CHECKED", "called", "guard", "length"]

_WORD = ir.IntType(64)
_MANY = 1 << 60  # counts from here on say that nobody knows
_ROOT = 0 if ranges is None else int(ranges.root.ctypes.data)


def guard(context: Any, builder: Any, address: Any, size: int) -> None:
    """See to it that `size` bytes at an address may be touched. Adds nothing if unchecked."""
    if CHECKED:
        found = _call(builder, "tideline_look_up", [address, _WORD(size)])
        _raise_unless(context, builder, found)


def length(context: Any, builder: Any, address: Any, count: Any, item: int) -> Any:
    """The length of an array that is made from an address: `count` if unchecked."""
    if not CHECKED:
        return count
    found = _call(builder, "tideline_measure", [address, count, _WORD(item)])
    _raise_unless(context, builder, found)
    return found


def _call(builder: Any, name: str, args: list[Any]) -> Any:
    kind = ir.FunctionType(_WORD, [_WORD] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _raise_unless(context: Any, builder: Any, found: Any) -> None:
    with cgutils.if_unlikely(builder, builder.icmp_signed("<", found, _WORD(0))):
        where = ".".join(_parts(builder.function.name))
        context.call_conv.return_user_exc(builder, BadAddress, (where,))


def _parts(mangled: str) -> list[str]:
    """The parts of a mangled name: `_ZN8tideline7kernels4heap8allocate...`."""
    parts, rest = [], mangled.removeprefix("_ZN")
    while found := re.match(r"\d+", rest):
        size = int(found[0])
        parts.append(rest[found.end() : found.end() + size])
        rest = rest[found.end() + size :]
    return parts


# ---- the search ------------------------------------------------------------------------------


@intrinsic
def _load(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _WORD.as_pointer()))

    return types.int64(types.int64), codegen


@intrinsic
def _load_now(typingctx: Any, address: Any) -> Any:
    """A load that is made just here, every time."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], _WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def _store(typingctx: Any, address: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], _WORD.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _make() -> list[Any]:
    from numba import njit

    @njit
    def search(address):
        """Bytes from an address to the end of the range it lies in; -1 if it lies in none."""
        table = _load_now(_ROOT)
        count = _load(table)
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            if _load(table + 8 + 8 * middle) <= address:
                low = middle + 1
            else:
                high = middle
        end = address
        if low > 0:
            end = _load(table + 8 * (count + low))
        for slot in range(SLOTS):
            at = _ROOT + 8 * (LENT + 2 * slot)
            if _load(at) <= address and _load(at + 8) > end:
                end = _load(at + 8)
        return end - address if end > address else -1

    @njit
    def room(address, size):
        """The same, of a list that did not change meanwhile where there are fewer than `size`."""
        while True:
            before = _load_now(_ROOT + 8 * CHANGES)
            found = search(address)
            if found >= size or (before & 1 == 0 and before == _load_now(_ROOT + 8 * CHANGES)):
                return found

    @cfunc(types.int64(types.int64, types.int64))
    def look_up(address, size):
        if room(address, size) >= size:
            return 0
        _store(_ROOT + 8, address)
        _store(_ROOT + 16, size)
        return -1

    @cfunc(types.int64(types.int64, types.int64, types.int64))
    def measure(address, count, item):
        if count <= 0:
            return 0
        found = room(address, _MANY if count >= _MANY else count * item)
        if count >= _MANY:  # 0 where there is no range, or an empty one
            return max(found, 0) // item
        if found >= count * item:
            return count
        _store(_ROOT + 8, address)
        _store(_ROOT + 16, count * item)
        return -1

    return [look_up, measure]


_functions: list[Any] = []


def link() -> None:
    """Let the linker find both functions. Before the first kernel is linked."""
    if CHECKED and not _functions:
        for function in _make():
            _functions.append(function)
            ll.add_symbol(f"tideline_{function.__name__}", function.address)


def called(kernel: str, call: Any, args: tuple[Any, ...]) -> Any:
    """Call a kernel in the checked job: its arrays are registered while it runs.

    What it reports is raised with the name of the kernel and the address, and kept.
    """
    assert ranges is not None
    slots = ranges.lend([each for each in args if hasattr(each, "ctypes")])
    try:
        return call(*args)
    except BadAddress as error:
        at, size = (int(word) for word in ranges.root[1:3])
        said = f"{kernel}: {size} bytes at {at:#x} lie in no registered range. function={error}"
        ranges.bad.append(said)
        raise BadAddress(said) from None
    except IndexError as error:
        ranges.bad.append(f"{kernel}: {error}")
        raise
    finally:
        ranges.take_back(slots)
