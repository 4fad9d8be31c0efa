"""`tideline warm`: compile the kernels now, visibly, instead of inside somebody's first call."""

from __future__ import annotations

import sys

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compile (or load) every kernel with a line of progress each."""
    from tideline.kernels.warm import compile_all

    seconds = compile_all(_to_stderr)
    print(f"tideline: kernels ready in {seconds:.1f} s", file=sys.stderr, flush=True)


def _to_stderr(number: int, total: int, name: str) -> None:
    print(f"tideline: [{number:2}/{total}] {name}", file=sys.stderr, flush=True)
