"""Recovery's fast reader gives what the plain one gives, and leaves the same errors to it."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.errors import Corruption
from tideline.kernels.frames import checksum_words
from tideline.lsm.log import Log


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_the_checksum_is_zlibs(numbers: list[int]) -> None:
    data = np.array(numbers, np.int64)
    assert checksum_words(data, 0, len(data)) == crc32(data.tobytes())


def fill(folder: Path, frames: int) -> list[bytes]:
    log = Log.open(folder, segment_bytes=4_000)
    payloads = [np.arange(n % 40, dtype=np.int64).tobytes() for n in range(frames)]
    for payload in payloads:
        log.append(payload)
    log.close()
    return payloads


def joined(folder: Path) -> bytes:
    log = Log.open(folder)
    data = b"".join(rows.tobytes() for _, rows in log.replay_joined())
    log.append(b"")  # only allowed once everything has been read
    log.close()
    return data


def test_it_joins_the_frames_of_all_segments(tmp_path: Path) -> None:
    payloads = fill(tmp_path, 200)
    assert len(list(tmp_path.iterdir())) > 3
    assert joined(tmp_path) == b"".join(payloads)


def test_a_torn_tail_is_cut_away(tmp_path: Path) -> None:
    payloads = fill(tmp_path, 20)
    last = sorted(tmp_path.iterdir())[-1]
    last.write_bytes(last.read_bytes()[:-5])
    assert joined(tmp_path) == b"".join(payloads[:-1])


def test_every_flipped_byte_is_corruption(tmp_path: Path) -> None:
    fill(tmp_path, 6)
    [file] = tmp_path.glob("*.log")
    good = file.read_bytes()
    for position in range(len(good)):
        file.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :])
        with pytest.raises(Corruption) as caught:
            joined(tmp_path)
        assert caught.value.file == str(file)
