"""`tideline warm`: compile the kernels now, visibly, instead of inside somebody's first call."""

from __future__ import annotations

import sys
import time

__all__ = ["warm_up"]


def warm_up(*, quiet: bool = False) -> None:
    """Compile every kernel that is not there, of channels and of documents, with a line each.

    `quiet`: those of channels alone, all of them, so that no call waits for one later; nothing is
    said when they are there.
    """
    from tideline.kernels.warm import GROUPS, compile_groups, ready

    started = time.perf_counter()
    groups = ("publish", "channels") if quiet else GROUPS
    missing = [group for group in groups if not ready(group)]
    if missing:
        print("tideline: compiling kernels, once on this machine", file=sys.stderr, flush=True)
        compile_groups(*missing, lines=not quiet)
    if missing or not quiet:
        seconds = time.perf_counter() - started
        print(f"tideline: kernels ready in {seconds:.1f} s", file=sys.stderr, flush=True)
