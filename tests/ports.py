"""Ports for servers that are told theirs, or that are killed and come back to their address.

A port that was handed out is this process's until it ends, also while nobody listens on it: other
processes of tests, in this run or another one, do not get it. What says so is a Unix socket with
its number in the name, which the system forgets along with the process.
"""

from __future__ import annotations

import os
import random
import socket

_FIRST, _LIMIT = 20_000, 32_000  # below those that the system gives to connections by itself
_draw = random.Random(os.urandom(8))
_held: list[int] = []  # descriptors; a child that was forked holds them, too


def free_port() -> int:
    """A port that nobody uses now, and that no other test gets meanwhile."""
    while True:
        if (port := _hold(_draw.randrange(_FIRST, _LIMIT))) is not None:
            return port


def free_ports(count: int) -> list[int]:
    """Several of them."""
    return [free_port() for _ in range(count)]


def ten_ports() -> int:
    """The first of ten in a row, which ends with 0."""
    while True:
        first = _draw.randrange(_FIRST, _LIMIT, 10)
        if all(_hold(port) is not None for port in range(first, first + 10)):
            return first


def _hold(port: int) -> int | None:
    """Take a port, if nobody has it."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0tideline-test-port-{port}")
        with socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
    except OSError:
        mark.close()
        return None
    _held.append(mark.detach())
    return port
