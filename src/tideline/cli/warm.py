"""`tideline warm`: compile the kernels now, visibly, instead of inside somebody's first call."""

from __future__ import annotations

import sys

__all__ = ["warm_up"]


def warm_up(*, quiet: bool = False) -> None:
    """Compile (or load) every kernel with a line of progress each.

    `quiet`: say nothing when they only have to be loaded.
    """
    from tideline.kernels.warm import compile_all, ready

    if quiet and ready():
        compile_all(lambda number, total, name: None)
        return
    if not ready():
        print("tideline: compiling kernels, once on this machine", file=sys.stderr, flush=True)
    seconds = compile_all(_to_stderr)
    print(f"tideline: kernels ready in {seconds:.1f} s", file=sys.stderr, flush=True)


def _to_stderr(number: int, total: int, name: str) -> None:
    print(f"tideline: [{number:2}/{total}] {name}", file=sys.stderr, flush=True)
