"""Order between stores and loads of two threads: for memory that one writes while others read it.

    writer    fill in a record    stores_done()    store the word that leads to it
    reader    load that word      loads_done()     read the record

On x86-64 neither makes an instruction: they only keep the compiler from moving loads and stores
across. On aarch64 each is one barrier. Aligned words of 4 and 8 bytes are stored and loaded whole
on both, so a reader meets the old word or the new one, never half of each.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

__all__ = ["loads_done", "stores_done"]


@intrinsic
def stores_done(typingctx: Any) -> Any:
    """Every store before this is seen by others before any store after it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("release")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def loads_done(typingctx: Any) -> Any:
    """Every load before this is made before any load after it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("acquire")
        return context.get_dummy_value()

    return types.void(), codegen
