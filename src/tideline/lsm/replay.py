"""Reading a log from its begin for recovery: every frame of some segments, once.

    replay          frame by frame, as views into the mapped segments
    replay_joined   payloads of whole words, many frames at once, checked and joined by a kernel

Each generator returns where the frames of the last segment end; what follows there is a torn tail.
Damage is `Corruption`. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import Corruption
from tideline.lsm.frames import MAGIC, frames, read_file_header
from tideline.lsm.segments import Segments

__all__ = ["replay", "replay_joined"]

_JOINED_WORDS = 1 << 20
_MAGIC_WORD = int.from_bytes(MAGIC, "little")


def replay(segments: Segments, numbers: list[int]) -> Generator[tuple[int, memoryview], None, int]:
    """Every frame of the segments with the number of its own."""
    end = 0
    for number in numbers:
        data, last = segments.map(number), number == numbers[-1]
        end = yield from frames(segments.path(number), number, data, last)
    return end


def replay_joined(
    segments: Segments, numbers: list[int]
) -> Generator[tuple[int, NDArray[np.int64]], None, int]:
    """Payloads joined end to end; the array is overwritten by the next one."""
    from tideline.kernels.frames import join_frames  # numba loads slowly: when needed

    room = np.empty(_JOINED_WORDS, np.int64)
    end = 0
    for number in numbers:
        path, last = segments.path(number), number == numbers[-1]
        data = segments.map(number)
        whole = np.frombuffer(data[: len(data) & ~7], np.int64)
        offset = head[0] if (head := read_file_header(path, number, data, last)) else 0
        while offset:
            position, used = join_frames(
                address_of(whole), offset >> 3, len(whole), _MAGIC_WORD, address_of(room),
                len(room),
            )  # fmt: skip
            if used == 0:
                break
            offset = int(position) << 3
            yield number, room[:used]
        # What is left is the end, torn, damaged, or too large for one go: one by one.
        rest = frames(path, number, data, last, offset)
        while True:
            try:
                _, payload = next(rest)
            except StopIteration as stop:
                end = stop.value
                break
            if len(payload) % 8:
                raise Corruption("log frame is not whole words", file=path, size=len(payload))
            yield number, np.frombuffer(payload, np.int64)
    return end
