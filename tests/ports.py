"""A free port for a server that is killed and comes back to its address."""

from __future__ import annotations

import os
import random
import socket

_FIRST, _LIMIT = 20_000, 32_000  # below those that the system gives to connections by itself


def free_port() -> int:
    """A port that nobody uses now, and that no connection of another test takes meanwhile.

    One of the system's own, freed again, is soon somebody else's.
    """
    draw = random.Random(os.urandom(8))
    while True:
        port = draw.randrange(_FIRST, _LIMIT)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
