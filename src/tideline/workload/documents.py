"""Tweets as documents of a collection: 22 attributes, about 550 bytes of JSON.

    row number --> the columns of tweets.py (who, when, where, what)
        |
        +-> more draws, some by user and some by row --> the other attributes --> JSON text

Attributes that queries use: `id` (the key, rising), `time` (seconds, rising with the row: a field
that is correlated with time) and `user` (skewed, about 30 tweets each: a field that is not). Users
are numbered from 0 without a gap and in no order of how much they write, so that a range of ten
numbers is ten users taken at random.

Invariants: those of tweets.py; a row is a function of its number, the seed and the number of
users. The values of a user (`name`, `followers`, ...) are the same in all tweets of the user. No
text needs an escape in JSON. Numpy and pyarrow only. Frozen; safe from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.errors import InvalidRequest
from tideline.workload.newyork import CITIES
from tideline.workload.shape import Shape, new_york
from tideline.workload.tweets import Numbers, Tweets, decimal, tables_of, word_pool

__all__ = ["TWEETS_A_USER", "Documents"]

TWEETS_A_USER = 30
_SPREAD = 2_654_435_761  # a prime: rank * prime % users gives every number once
_HALF = np.uint64(32)
# Lanes of draws, after those of tweets.py.
(_LANG, _SOURCE, _RETWEETS, _FAVORITES, _REPLY, _ABOUT, _TOWN, _FOLLOWERS, _FRIENDS, _JOINED) = (
    range(20, 30)
)
_LANGS = pa.array(["en"] * 12 + ["es", "es", "fr", "zh"])
_SOURCES = pa.array(
    ["Twitter for iPhone"] * 8 + ["Twitter for Android"] * 4 + ["Twitter Web Client"] * 2
    + ["Instagram", "Foursquare"]
)  # fmt: skip
_TOWNS = pa.array(sorted(CITIES))
_ZONE, _COUNTRY = "Eastern Time (US and Canada)", "United States"
_JOINED_S, _YEARS_S = 1_200_000_000, 400_000_000


@dataclass(frozen=True)
class Documents(Tweets):
    """Tweets as documents; `Documents.of(count)` has as many users as so many tweets need.

    >>> tweets = Documents.of(3_000, seed=7)
    >>> tweets.batch(0, 2).select(["id", "user", "time"]).to_pylist()
    [{'id': 0, 'user': 0, 'time': 1700000000}, {'id': 1, 'user': 88, 'time': 1700000000}]
    >>> tweets.texts(0, 1)[0].as_py()[:36]
    '{"id":0,"user":0,"time":1700000000,"'
    """

    @classmethod
    def of(cls, count: int, seed: int = 0, shape: Shape | None = None) -> Documents:
        """The tweets of which there will be `count`, about 30 a user.

        The busiest users of the shape write them; a set larger than the shape has more users.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidRequest("count must be at least 1", count=count)
        shape = shape or new_york()
        users = max(1, count // TWEETS_A_USER)
        few = users <= len(shape.users)
        shape = replace(shape, users=shape.users[:users]) if few else shape.with_users(users)
        return cls(seed, shape)

    @property
    def user_count(self) -> int:
        """How many users there are: numbers from 0 on."""
        return len(self.shape.users)

    @property
    def schema(self) -> pa.Schema:
        """The 22 attributes."""
        text, number, real = pa.string(), pa.int64(), pa.float64()
        return pa.schema({
            "id": number, "user": number, "time": number, "text": text, "lang": text,
            "place": text, "lon": real, "lat": real, "source": text, "reply_to": number,
            "retweets": number, "favorites": number, "name": text, "about": text, "town": text,
            "zone": text, "country": text, "followers": number, "friends": number,
            "posts": number, "joined": number, "verified": pa.bool_(),
        })  # fmt: skip

    def users(self, numbers: Numbers) -> Numbers:
        """Who wrote the rows of these numbers."""
        rank = tables_of(self.shape).users.pick(self._draws(numbers, 0))
        found: Numbers = rank * _SPREAD % self.user_count
        return found

    def seconds(self, numbers: Numbers) -> Numbers:
        """The attribute `time` of the rows of these numbers."""
        return self._times(numbers) // 1_000_000

    def rows(self, numbers: Numbers, ids: Numbers | None = None) -> pa.RecordBatch:
        """The rows of these numbers as columns, with other ids if given."""
        user = self.users(numbers)
        cell, lon, lat = self._places(numbers)
        about, name = self._of_users(user)
        reply = self._below(numbers, _REPLY, 1 << 20)
        followers = self._rare(user, _FOLLOWERS, 200)
        town = pa.array(self._below(user, _TOWN, len(_TOWNS)))
        columns = [
            numbers if ids is None else ids,
            user,
            self.seconds(numbers),
            self._texts(numbers, None),
            _LANGS.take(pa.array(self._below(numbers, _LANG, len(_LANGS)))),
            tables_of(self.shape).names.take(pa.array(cell)),
            np.rint(lon * 1e6) / 1e6,
            np.rint(lat * 1e6) / 1e6,
            _SOURCES.take(pa.array(self._below(numbers, _SOURCE, len(_SOURCES)))),
            # A fifth answers another tweet, one of the last million.
            pa.array(np.maximum(numbers - reply, 0), mask=reply > 200_000),
            self._rare(numbers, _RETWEETS, 2),
            self._rare(numbers, _FAVORITES, 3),
            name,
            about,
            _TOWNS.take(town),
            pa.repeat(_ZONE, len(numbers)),
            pa.repeat(_COUNTRY, len(numbers)),
            followers,
            self._rare(user, _FRIENDS, 150),
            followers * 7 + user % 1_000,
            _JOINED_S + self._below(user, _JOINED, _YEARS_S),
            pa.array(followers > 20_000),
        ]
        arrays = [pa.array(column) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def texts(self, first: int, count: int) -> pa.Array:
        """The rows `[first, first + count)` as JSON texts."""
        return self.as_json(self.batch(first, count))

    def documents(self, numbers: Numbers, ids: Numbers | None = None) -> pa.Array:
        """The rows of these numbers as JSON texts, with other ids if given."""
        return self.as_json(self.rows(numbers, ids))

    @staticmethod
    def as_json(batch: pa.RecordBatch) -> pa.Array:
        """Rows as JSON texts, what is null written as null; only for rows made here.

        >>> made = Documents.as_json(Documents.of(1).batch(1, 1).select(["id", "reply_to"]))
        >>> made.to_pylist()
        ['{"id":1,"reply_to":null}']
        """
        pieces: list[pa.Array | str] = []
        before = "{"
        for column, field in zip(batch.columns, batch.schema, strict=True):
            is_text = pa.types.is_string(field.type)
            quote = '"' if is_text else ""
            pieces.append(f'{before}"{field.name}":{quote}')
            text = column if is_text else column.cast(pa.string())
            pieces.append(text.fill_null("null") if text.null_count else text)
            before = quote + ","
        return pc.binary_join_element_wise(*pieces, before[:-1] + "}", "")

    # ---- columns ------------------------------------------------------------------------

    def _below(self, numbers: Numbers, lane: int, limit: int) -> Numbers:
        """A number below `limit` for each."""
        drawn = (self._draws(numbers, lane) >> _HALF) * np.uint64(limit) >> _HALF
        return drawn.view(np.int64)

    def _rare(self, numbers: Numbers, lane: int, middle: int) -> Numbers:
        """Small numbers mostly, large ones seldom: half are up to about `middle`."""
        draws = (self._draws(numbers, lane) >> np.uint64(44)).view(np.int64)
        found: Numbers = middle * (1 << 20) // (draws + 64) - middle
        return found

    def _of_users(self, user: Numbers) -> tuple[pa.Array, pa.Array]:
        """What each user says of themselves, and the name."""
        words = word_pool()
        drawn = self._draws(user, _ABOUT)
        word = ((drawn >> _HALF) * np.uint64(len(words.starts)) >> _HALF).view(np.int64)
        length = 78 + ((drawn & np.uint64(0xFFFFFFFF)) * np.uint64(60) >> _HALF).view(np.int64)
        start = words.starts[word]
        about = words.slices(start, words.ends[start + length] - start, None)
        return about, pc.binary_join_element_wise("user_", decimal(user), "")
