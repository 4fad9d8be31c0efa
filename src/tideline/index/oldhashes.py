"""Sealed components of channels from format 1, release 0.1.0: their ids are hashed anew.

Format 1 hashed the id of a record byte by byte, later formats eight bytes at a time
(kernels/text.py `hash_id`). So the two columns by which a record is found by its id are made again
in memory when such a component is opened; everything else is read in place. Nothing in the file
says its format: the hash of one id does. What is merged is written in today's format.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tideline.kernels.store import SIDE_SALT
from tideline.kernels.text import P1

__all__ = ["hash_of_id", "rehashed"]

_ALL = (1 << 64) - 1


def _signed(word: int) -> int:
    word &= _ALL
    return word - (1 << 64) if word >> 63 else word


def _step(h: int, word: int) -> int:
    h = _signed((h ^ word) * P1)
    return h ^ (h >> 29)


def hash_of_id(text: bytes, seed: int) -> int:
    """What the kernel `hash_id` gives.

    >>> hash_of_id(b"e1", 7), hash_of_id(b"", 0)
    (453430787212628627, 1)
    """
    h = _signed(seed ^ len(text))
    whole = len(text) & ~7
    for start in range(0, whole, 8):
        h = _step(h, int.from_bytes(text[start : start + 8], "little", signed=True))
    h = _step(h, int.from_bytes(text[whole:], "big"))
    h ^= h >> 32
    return h if h != 0 else 1


def rehashed(lists: pa.LargeListArray, side: int, seed: int) -> pa.LargeListArray:
    """The lists of one side of a component, with hashes of today.

    What has them already is given back as it is.
    """
    records = lists.values
    if len(records) == 0:
        return lists
    salted = seed ^ (SIDE_SALT * (side + 1))
    ids, by_id = records.field("id"), records.field("by_id")
    if hash_of_id(ids[by_id[0].as_py()].as_buffer().to_pybytes(), salted) == (
        records.field("id_hash")[0].as_py()
    ):
        return lists
    hashes = np.array(
        [hash_of_id(each.encode(), salted) for each in ids.to_pylist()], dtype=np.int64
    )
    order = np.argsort(hashes, kind="stable")
    fresh = {"id_hash": hashes[order], "by_id": order.astype(np.int64)}
    names = [field.name for field in records.type]
    columns = [pa.array(fresh[name]) if name in fresh else records.field(name) for name in names]
    struct = pa.StructArray.from_arrays(columns, names=names)
    offsets = pa.Array.from_buffers(
        pa.int64(), len(lists) + 1, [None, lists.buffers()[1]], offset=lists.offset
    )
    return pa.LargeListArray.from_arrays(offsets, struct)
