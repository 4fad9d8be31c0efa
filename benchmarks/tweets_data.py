"""Made-up tweets as documents, for the benchmarks of filters and of writing.

    {"id": 17, "time": 17, "user": 471, "lang": 11, "friends": 711, "at": [lon, lat],
     "text": "...", "pad": "..."}

`time` counts the tweets, as `integer-send-time` of the study does; `user` is one of 500, drawn
evenly, `lang` one of 40, `friends` one of 1,000; places are those of workload/clusters.py, texts
those of workload/tweets.py. A tweet is a function of its number.
"""

from __future__ import annotations

import numpy as np

from tideline.workload.clusters import Clusters
from tideline.workload.tweets import Tweets

__all__ = ["CLUSTERS", "USERS", "tweets"]

USERS = 500
CLUSTERS = Clusters(seed=8)
_TEXTS = Tweets(seed=8)


def tweets(first: int, count: int, *, late: int = 0, pad: int = 200) -> list[str]:
    """Some tweets as JSON; with `late` each has a time up to so much before its number.

    >>> len(tweets(0, 3)), tweets(1, 1) == tweets(0, 3)[1:2]
    (3, True)
    """
    lon, lat = CLUSTERS.points(first, count)
    texts = _TEXTS.batch(first, count).column("text").to_pylist()
    rows = np.arange(first, first + count, dtype=np.uint64)
    drawn = rows * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(0x5DEECE66D1234567)
    drawn = (drawn ^ (drawn >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(20)
    users = (drawn % np.uint64(USERS)).tolist()
    times = np.arange(first, first + count)
    if late:
        times = times - (drawn >> np.uint64(13)).astype(np.int64) % late
    filled = "x" * pad
    return [
        f'{{"id":{n},"time":{time},"user":{user},"lang":{user % 40},"friends":{n * 7919 % 1000},'
        f'"at":[{x},{y}],"text":"{text}","pad":"{filled}"}}'
        for n, time, user, x, y, text in zip(
            rows.tolist(), times.tolist(), users, lon.tolist(), lat.tolist(), texts, strict=True
        )
    ]
