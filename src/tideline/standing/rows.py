"""Documents for the kernel: what lies at the columns in use, in one pass over their texts.

Old and new images are read together, one after the other: one pass, one pair of arrays. Rows that
the kernel cannot read (arrays, escapes, odd numbers) are decoded, and their values given to it:
all entries that a test at the path would see (where/order.py).

Not safe from several threads: callers hold a lock.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tideline.addresses import address_of
from tideline.errors import InvalidRequest
from tideline.index.texts import Texts
from tideline.kernels import jsonpath
from tideline.kernels.standing import layout as at
from tideline.kernels.standing import values as kernel
from tideline.standing.grams import masks_of
from tideline.standing.parts import Column, bits_of
from tideline.standing.places import boxes_at, cells_of
from tideline.where.geo import point_of
from tideline.where.order import entries
from tideline.where.paths import Paths
from tideline.where.words import fold, folded

__all__ = ["Given", "Images", "Reader", "decoded"]

Words = NDArray[np.int64]
Levels = dict[int, list[int]]


class Reader:
    """The columns in use, as paths to read."""

    def __init__(self, columns: dict[Column, int], count: int, seed: int) -> None:
        self.count = count
        self.seed = seed
        self.columns = columns
        wanted = []
        for view, dotted in columns:
            path = tuple(dotted.split("."))
            wanted.append(path)
            if view == at.POINT:
                wanted += [(*path, "type"), (*path, "coordinates")]
        self.paths = Paths(wanted)
        self.parents = np.array(self.paths.parents, np.int64)
        self.table = np.full((max(count, 1), at.COLUMN), -1, np.int64)
        for (view, dotted), number in columns.items():
            path = tuple(dotted.split("."))
            nodes = [self.paths.numbers[path], self.paths.numbers[path[:-1]]]
            if view == at.POINT:
                nodes += [self.paths.numbers[(*path, name)] for name in ("type", "coordinates")]
            self.table[number, : 1 + len(nodes)] = view, *nodes
        self._leads = np.zeros((jsonpath.LEADS + 2) * jsonpath.LEAD, np.uint8)
        self._stack = np.empty(2 * jsonpath.DEPTH, np.int64)
        self.data = np.empty(0, np.uint8)
        self.offsets = np.empty(0, np.int64)
        self.make_room(1, 1)

    def make_room(self, rows: int, size: int) -> None:
        """See to room for so many rows and bytes, and some behind."""
        if rows < len(self.offsets) and size + jsonpath.PADDING <= len(self.data):
            return
        if rows >= len(self.offsets):
            self.offsets = np.zeros(rows + 64, np.int64)
            nodes = len(self.paths.paths)
            self._tags = np.empty(nodes * (rows + 64), np.int64)
            self._values = np.empty(nodes * (rows + 64), np.int64)
        if size + jsonpath.PADDING > len(self.data):
            self.data = np.zeros(size + size // 4 + 4096, np.uint8)
            self._maps = np.empty((2, len(self.data) // 8 + jsonpath.PADDING), np.uint8)
        self.addresses = (
            address_of(self._tags), address_of(self._values),
            address_of(self.data), address_of(self.offsets),
        )  # fmt: skip

    def read(self, rows: int) -> None:
        """Read the texts between the first offsets, of so many rows."""
        nodes = len(self.paths.paths)
        tags = self._tags[: nodes * rows].reshape(nodes, rows)
        values = self._values[: nodes * rows].reshape(nodes, rows)
        tags.fill(jsonpath.MISSING)
        jsonpath.scan(
            self.addresses[2], self.offsets, 0, rows, self.paths.nodes, self._leads, self._stack,
            tags, values, self._maps,
        )  # fmt: skip

    def given(self, document: Any, levels: Levels) -> tuple[list[int], list[Any], bool]:
        """The values of a decoded document: how many up to each column, and five words each.

        The fourth word of a text is the text. `levels` are those of the grid by column. The last of
        what it returns: a geometry touches more cells than are listed.
        """
        wide = False
        found: list[Any] = []
        lists: list[list[Any]] = [[]] * self.count
        for (view, dotted), number in self.columns.items():
            each = entries(document, dotted)
            if view == at.VALUES:
                lists[number] = [self._value(one) for one in each]
            elif view == at.GRAMS:
                data = [
                    fold(one).encode("utf-8", "surrogatepass") for one in each if type(one) is str
                ]
                lists[number] = [(at.K_GRAMS, *masks_of(one), one, len(one)) for one in data]
            elif view == at.WORDS:
                texts = [one for one in each if type(one) is str]
                words = {word for text in texts for word in folded(text)}
                lists[number] = [(at.K_WORD, self._word(word), kernel.NAN, 0, 0) for word in words]
            else:
                points = [point for one in each if (point := point_of(one)) is not None]
                lists[number] = [_loose(*point) for point in points]
                for box in boxes_at(document, dotted.split(".")):
                    cells = cells_of(box, levels.get(number, ()))
                    wide = wide or cells is None
                    lists[number] += cells or ()
        starts = [0]
        for one in lists:
            found += one
            starts.append(len(found))
        return starts, found, wide

    def _value(self, value: Any) -> tuple[int, int, int, Any, int]:
        if type(value) is str:
            data = value.encode("utf-8", "surrogatepass")
            hashed = kernel.hash_text(address_of(data), len(data), self.seed)
            return at.K_TEXT, hashed, kernel.NAN, data, len(data)
        if type(value) is int or type(value) is float:
            try:
                bits = bits_of(float(value))
            except OverflowError:
                bits = bits_of(math.inf if value > 0 else -math.inf)
            return at.K_NUMBER, bits, bits, 0, 0
        kind = _KINDS[type(value)] if type(value) is not bool else at.K_FALSE + value
        return kind, kind, kernel.NAN, 0, 0

    def _word(self, word: str) -> int:
        data = word.encode()
        hashed: int = kernel.hash_word(address_of(data), len(data), self.seed)
        return hashed


_KINDS = {type(None): at.K_NULL, list: at.K_ARRAY, dict: at.K_OBJECT}


def _loose(lon: float, lat: float) -> tuple[int, int, int, int, int]:
    phi = math.radians(lat)
    cosine, sine = bits_of(math.cos(phi)), bits_of(math.sin(phi))
    return at.K_LOOSE, cosine, bits_of(lon), bits_of(lat), sine


class Images:
    """Old and new images of some rows, read. Without old ones, there are only new ones.

    The memory is the reader's, and the next images take it.
    """

    def __init__(self, reader: Reader, old: Texts | None, new: Texts) -> None:
        self._reader = reader
        self.rows = new.count
        self.has_old = old is not None
        parts = [new] if old is None else [old, new]
        self.stride = self.rows * len(parts)
        sizes = [part.size_bytes for part in parts]
        reader.make_room(self.stride, sum(sizes))
        used = place = 0
        for part, size in zip(parts, sizes, strict=True):
            first = part.offsets.item(0)
            reader.data[used : used + size] = part.data[first : first + size]
            np.add(part.offsets, used - first, out=reader.offsets[place : place + self.rows + 1])
            used += size
            place += self.rows
        reader.read(self.stride)

    def tell(self, call: Words) -> None:
        """Write the addresses into a call."""
        reader, old_words = self._reader, at.C_OLD_TAGS
        call[at.C_ROWS], call[at.C_STRIDE], call[at.C_GIVEN] = self.rows, self.stride, 0
        tags, values, data, offsets = reader.addresses
        shift = 0
        call[old_words] = 0
        if self.has_old:
            call[old_words : old_words + 4] = tags, values, data, offsets
            shift = 8 * self.rows
        new_words = at.C_NEW_TAGS
        call[new_words : new_words + 4] = tags + shift, values + shift, data, offsets + shift

    def text(self, image: int, row: int) -> bytes:
        """The text of an image (0 the old, 1 the new) of a row; empty for none."""
        if image == 0 and not self.has_old:
            return b""
        place = row + (self.rows if image and self.has_old else 0)
        offsets = self._reader.offsets
        return self._reader.data[offsets.item(place) : offsets.item(place + 1)].tobytes()


class Given:
    """The values of some rows, decoded."""

    def __init__(
        self, reader: Reader, rows: Words, images: list[list[Any]], levels: Levels
    ) -> None:
        """`images` are the old and the new documents; `...` is none."""
        self.wide: set[int] = set()
        """The places among the rows of documents with a geometry that touches too many cells."""
        self._rows = rows
        self._kept: list[Any] = []
        self._words: list[tuple[int, int, int]] = []
        for documents in images:
            starts: list[int] = []
            found: list[Any] = []
            states: list[int] = []
            for place, document in enumerate(documents):
                own: list[int] = [0] * (reader.count + 1)
                if document is ...:
                    states.append(at.NONE)
                elif type(document) is not dict:
                    states.append(at.OTHER)
                else:
                    states.append(at.OBJECT)
                    own, more, wide = reader.given(document, levels)
                    if wide:
                        self.wide.add(place)
                    own = [start + len(found) for start in own]
                    found += more
                starts += own
            self._words.append(self._tell(states, starts, found))

    def _tell(self, states: list[int], starts: list[int], found: list[Any]) -> tuple[int, int, int]:
        joined = b"".join(one[3] for one in found if type(one[3]) is bytes)
        texts = np.frombuffer(joined + b"\0", np.uint8)
        begin = address_of(texts)
        words = []
        for one in found:
            if type(one[3]) is bytes:
                words += [*one[:3], begin, one[4]]
                begin += len(one[3])
            else:
                words += one
        made = [np.array(each, np.int64) for each in (states, starts, words or [0])]
        self._kept += [texts, *made]
        return address_of(made[0]), address_of(made[1]), address_of(made[2])

    def tell(self, call: Words) -> None:
        """Write the addresses into a call."""
        call[at.C_ROWS], call[at.C_GIVEN] = len(self._rows), address_of(self._rows)
        for first, words in zip((at.C_OLD_TAGS, at.C_NEW_TAGS), self._words, strict=True):
            call[first + 4 : first + 7] = words


def decoded(text: bytes, row: int) -> Any:
    """A document, or `...` for an empty text."""
    if not text:
        return ...
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"a document is not valid JSON ({error})", row=row) from error
