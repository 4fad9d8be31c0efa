"""`tideline warm`: compile the kernels now, visibly, instead of inside somebody's first call."""

from __future__ import annotations

import sys

__all__ = ["warm_up"]


def warm_up(*, quiet: bool = False) -> None:
    """Compile (or load) every kernel, of channels and of documents, with a line of progress each.

    `quiet`: say nothing when they only have to be loaded, and see to those of channels alone.
    """
    from tideline.kernels.warm import GROUPS, compile_all, ready

    if quiet and ready():
        compile_all(lambda number, total, name: None)
        return
    groups = GROUPS[:1] if quiet else GROUPS
    if not all(map(ready, groups)):
        print("tideline: compiling kernels, once on this machine", file=sys.stderr, flush=True)
    seconds = sum(compile_all(_to_stderr, group) for group in groups)
    print(f"tideline: kernels ready in {seconds:.1f} s", file=sys.stderr, flush=True)


def _to_stderr(number: int, total: int, name: str) -> None:
    print(f"tideline: [{number:2}/{total}] {name}", file=sys.stderr, flush=True)
