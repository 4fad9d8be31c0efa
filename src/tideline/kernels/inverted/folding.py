"""Texts as they stand in JSON documents, folded: ASCII only, the others are left to Python.

As `where.words.fold` and `folded` of ASCII: capital letters become small ones, and as words,
what is neither a letter nor a digit becomes one space between words.
"""

from __future__ import annotations

from tideline.kernels import jit
from tideline.kernels.lanes import get8
from tideline.kernels.views import octets, words

__all__ = ["fold_rows"]


@jit
def fold_rows(base, tags_at, values_at, rows_at, count, as_words, offsets_at, out_at, open_at):
    """Fold the texts of some rows into `out`; bytes written.

    `tags` and `values` are those of kernels/jsonpath.py at one node: the length of a text and where
    it begins. A text that is not ASCII is written as nothing, and `open` has a 1.
    """
    tags, values = words(tags_at, 1 << 60), words(values_at, 1 << 60)
    rows, offsets = words(rows_at, count), words(offsets_at, count + 1)
    out, left = octets(out_at, 1 << 60), octets(open_at, count)
    used = 0
    offsets[0] = 0
    for i in range(count):
        row = rows[i]
        at = base + values[row]
        limit = at + (tags[row] >> 8)
        start = used
        left[i] = 0
        between = False
        while at < limit:
            byte = get8(at)
            at += 1
            if byte >= 128:
                left[i] = 1
                used = start
                break
            if 65 <= byte <= 90:
                byte += 32
            if as_words and not (97 <= byte <= 122 or 48 <= byte <= 57):
                between = used > start
                continue
            if between:
                out[used] = 32
                used += 1
                between = False
            out[used] = byte
            used += 1
        offsets[i + 1] = used
    return used
