"""On which side of a line a point lies, compiled, and exact whatever the rounding.

    orient(a, b, c)   over 0 when c lies to the left of the line from a to b, 0 on it

Most calls are decided by the plain difference of two products: its rounding is known, and the
result is larger. What is left is the sum of twelve numbers that is exact (six products, each with
the error that its rounding made). It is *distilled*: pairs are added, each sum followed by the
error of it, until the last number outweighs all others together. Then its sign is that of the sum.

Exact for coordinates that are 0 or at least 1e-130, and at most 1e100. `space.outline.side` is its
twin in Python. No Python objects, no state; all release the GIL.
"""

from __future__ import annotations

from tideline.kernels import jit

__all__ = ["apart", "orient", "same_side"]

_ROUNDING = 3.3306690738754716e-16  # (3 + 16 u) u, with u = 2**-53
_SPLIT = 134217729.0  # 2**27 + 1
_MOST_ROUNDS = 400


@jit
def orient(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    """Over 0 when c lies to the left of the line from a to b, under 0 to the right, 0 on it."""
    left = (bx - ax) * (cy - ay)
    right = (cx - ax) * (by - ay)
    side = left - right
    if abs(side) > _ROUNDING * (abs(left) + abs(right)):
        return side
    if (ax == bx and ay == by) or (ax == cx and ay == cy) or (bx == cx and by == cy):
        return 0.0
    return _exact(ax, ay, bx, by, cx, cy)


@jit
def same_side(one: float, other: float) -> bool:
    """Whether two of `orient` say the same side, and neither that a point is on the line."""
    return (one > 0.0 and other > 0.0) or (one < 0.0 and other < 0.0)


@jit
def apart(
    ax: float, ay: float, bx: float, by: float, cx: float, cy: float, dx: float, dy: float
) -> bool:
    """Whether one of the edges a to b and c to d lies on one side of the other's line."""
    return same_side(orient(ax, ay, bx, by, cx, cy), orient(ax, ay, bx, by, dx, dy)) or same_side(
        orient(cx, cy, dx, dy, ax, ay), orient(cx, cy, dx, dy, bx, by)
    )


@jit
def _sum(a: float, b: float) -> tuple[float, float]:
    """a + b, and what rounding took away."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@jit
def _product(a: float, b: float) -> tuple[float, float]:
    """a * b, and what rounding took away."""
    total = a * b
    wide = _SPLIT * a
    a1 = wide - (wide - a)
    a0 = a - a1
    wide = _SPLIT * b
    b1 = wide - (wide - b)
    b0 = b - b1
    return total, a0 * b0 - (((total - a1 * b1) - a0 * b1) - a1 * b0)


@jit
def _exact(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    """A number with the sign of ax by - ay bx + bx cy - by cx + cx ay - cy ax."""
    t6, t0 = _product(ax, by)
    t7, t1 = _product(-ay, bx)
    t8, t2 = _product(bx, cy)
    t9, t3 = _product(-by, cx)
    ta, t4 = _product(cx, ay)
    tb, t5 = _product(-cy, ax)
    for _ in range(_MOST_ROUNDS):
        t1, t0 = _sum(t0, t1)
        t2, t1 = _sum(t1, t2)
        t3, t2 = _sum(t2, t3)
        t4, t3 = _sum(t3, t4)
        t5, t4 = _sum(t4, t5)
        t6, t5 = _sum(t5, t6)
        t7, t6 = _sum(t6, t7)
        t8, t7 = _sum(t7, t8)
        t9, t8 = _sum(t8, t9)
        ta, t9 = _sum(t9, ta)
        tb, ta = _sum(ta, tb)
        rest = abs(t0) + abs(t1) + abs(t2) + abs(t3) + abs(t4) + abs(t5)
        rest += abs(t6) + abs(t7) + abs(t8) + abs(t9) + abs(ta)
        if rest == 0.0 or abs(tb) > rest * 1.000001:
            return tb
    return tb
