"""Options of the format `tideline`, read and checked.

Every mistake is `InvalidRequest` that names the option and what it may be. Spark hands over
names in any case (`startingPosition`), so they are known here in lower case.

Pure functions; safe from any thread.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from tideline.channel.checks import check_time
from tideline.clock import to_us
from tideline.errors import InvalidRequest
from tideline.near import nearest

__all__ = [
    "Target", "choice", "condition", "json_object", "number", "rejected", "span", "target",
    "time_us",
]  # fmt: skip

_NAMES = {
    "read": [
        "channel", "kind", "place", "since", "until", "where", "partitions", "bodyAs", "placeAs",
    ],
    "follow": ["channel", "kind", "startingPosition", "maxRowsPerBatch", "bodyAs", "placeAs"],
    "write": ["channel", "op", "space", "rejected", "order", "writer", "number"],
    "stream": ["channel", "op", "space", "rejected", "order"],
    "read documents": ["collection", "where", "low", "high", "partitions", "bodyAs"],
    "follow documents": ["collection", "startingPosition", "maxRowsPerBatch", "before", "bodyAs"],
    "write documents": [
        "collection", "op", "version", "key", "indexes", "rejected", "writer", "number",
    ],
    "stream documents": ["collection", "op", "version", "key", "indexes", "rejected"],
    "read window": ["window", "keys", "lastS", "closed", "partitions"],
    "write window": ["window", "settings", "rejected", "writer", "number"],
    "stream window": ["window", "settings", "rejected"],
}  # fmt: skip
_WRITTEN_BY_ARROW = ["abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs"]
_PLACES = ["url", "token"]  # of everything: a server instead of a folder
_SPARKS = {  # Spark hands these on, the second line with a table of its catalog
    "path", "checkpointlocation", "queryname",
    "location", "provider", "owner", "external", "is_managed_location", "comment", "collation",
}  # fmt: skip
_ELSEWHERE = {
    "read": "a batch read", "follow": "a streaming read", "write": "a batch write",
    "stream": "a streaming write", "read documents": "a batch read of a collection",
    "follow documents": "a streaming read of a collection",
    "write documents": "a batch write to a collection",
    "stream documents": "a streaming write to a collection",
    "read window": "a batch read of a stream window",
    "write window": "a batch write to a stream window",
    "stream window": "a streaming write to a stream window",
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Which channel, collection or stream window of which store."""

    path: str
    """The folder, or the address of a server."""
    channel: str
    token: str | None = field(default=None, repr=False)
    what: str = "channel"
    """`channel`, `collection` or `window`."""
    host: str = ""
    """The machine that may open the folder when nobody has it open: where Spark plans."""

    @property
    def documents(self) -> bool:
        """Whether it is a collection."""
        return self.what == "collection"

    @property
    def is_url(self) -> bool:
        """Whether it is a server.

        >>> Target("http://127.0.0.1:8080", "roads").is_url, Target("./data", "roads").is_url
        (True, False)
        """
        return self.path.startswith(("http://", "https://"))


def target(options: Mapping[str, str], doing: str) -> Target:
    """The store and channel; options that are not for what is being done are refused."""
    if not options:
        raise InvalidRequest(
            "Spark 4.3 hands a Python source no options of a table in its catalog: make a view, "
            "with CREATE TEMPORARY VIEW ... USING tideline OPTIONS (...)"
        )
    known = {name.lower(): name for name in [*_NAMES[doing], *_PLACES]}
    for given in options:
        if given.lower() in known or given.lower() in _SPARKS or given.startswith("option."):
            continue
        other = [_ELSEWHERE[where] for where, names in _NAMES.items()
                 if given.lower() in (name.lower() for name in names)]  # fmt: skip
        meant = nearest(given.lower(), known)
        hint = f"it is one of {' and '.join(other)}" if other else "it is unknown"
        if meant and not other:
            hint += f" (did you mean {known[meant]}?)"
        raise InvalidRequest(
            f"{_ELSEWHERE[doing]} takes no such option, {hint}: "
            f"there are {', '.join(known.values())}",
            option=given,
        )
    what = {"documents": "collection", "window": "window"}.get(doing.split()[-1], "channel")
    path, url, channel = _folder(options), options.get("url"), options.get(what)
    if path and url:
        raise InvalidRequest("give a folder or the option url, not both", path=path, url=url)
    if not path and not url:
        raise InvalidRequest(
            "the store's folder is missing: give it to load() or save(), or give the option url of "
            "a server"
        )
    if not channel:
        raise InvalidRequest(f"the option {what} is missing", path=path or url)
    if url:
        found = Target(url, channel, options.get("token"), what)
        if not found.is_url:
            raise InvalidRequest("the option url must be http://HOST:PORT or https://...", url=url)
        return found
    assert path is not None
    if "://" in path:
        raise InvalidRequest(
            "the path must be the folder of a store; a server is given as the option url", path=path
        )
    if "token" in options:
        raise InvalidRequest("the option token goes with url")
    whole = os.path.abspath(path)
    return Target(whole, channel, what=what, host=socket.gethostname())


def _folder(options: Mapping[str, str]) -> str | None:
    """The path that was given; while a table of the catalog is made, its location."""
    path = options.get("path")
    if path is None and "url" not in options:
        path = options.get("location")
    if path is None or not path.startswith("file:"):
        return path
    return unquote(urlsplit(path).path)


def choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    """One of a few words.

    >>> choice({}, "kind", ("events", "answers"), "events")
    'events'
    """
    value = options.get(name, default)
    if value not in allowed:
        raise InvalidRequest(f"the option {name} must be one of {', '.join(allowed)}", given=value)
    return value


def rejected(options: Mapping[str, str]) -> str:
    """What becomes of bad rows: `fail`, `drop`, or a folder for them.

    A word that is nearly one of these is a mistake, and no folder: that would have a `/`.

    >>> rejected({"rejected": "./fial"})
    './fial'
    """
    value = options.get("rejected", "fail")
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", value)
    if scheme and scheme[1] not in _WRITTEN_BY_ARROW:
        raise InvalidRequest(
            "rejected rows are written by pyarrow, which does not know this kind of path (of S3 it "
            "is s3://, with the keys of the environment)", given=value, known=_WRITTEN_BY_ARROW,
        )  # fmt: skip
    if value in ("fail", "drop") or "/" in value:
        return value
    # `keep` is a word of tideline.spark.match
    close = nearest(value, ("fail", "drop", "keep"))
    words = "the option rejected must be fail, drop or the path of a folder"
    if not value.strip():
        raise InvalidRequest(words, given=value)
    if close:
        meant = "." if close == "keep" else f": did you mean {close!r}?"
        raise InvalidRequest(f"{words}{meant} A folder of that name is './{value}'")
    return value


def condition(options: Mapping[str, str]) -> dict[str, Any] | None:
    """The option `where`: a condition, checked here and sent as it is."""
    from tideline.where import parse

    document = json_object(options, "where")
    parse(document)
    return document


def span(options: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The options `since` and `until`."""
    since, until = time_us(options, "since"), time_us(options, "until")
    if since is not None and until is not None and until <= since:
        raise InvalidRequest(
            "the window must end after it starts",
            since=options.get("since"), until=options.get("until"),
        )  # fmt: skip
    for name, value in (("since", since), ("until", until)):
        if value is not None:
            check_time(value, name)
    return since, until


def number(options: Mapping[str, str], name: str, least: int) -> int | None:
    """A whole number, if it is given."""
    text = options.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise InvalidRequest(f"the option {name} must be a whole number from {least} on",
                             given=text)  # fmt: skip
    return value


def time_us(options: Mapping[str, str], name: str) -> int | None:
    """A time: ISO 8601, or seconds since 1970. One without a zone is UTC.

    >>> time_us({"since": "1970-01-01T00:01:00"}, "since")
    60000000
    """
    text = options.get(name)
    if text is None:
        return None
    try:
        try:
            moment = datetime.fromtimestamp(float(text), UTC)
        except ValueError:
            moment = datetime.fromisoformat(text)
        return to_us(moment, name)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(
            f"the option {name} must be ISO 8601 or seconds since 1970", given=text
        ) from None


def json_object(options: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """A JSON object, if it is given."""
    text = options.get(name)
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the option {name} must be JSON: {error}", given=text) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the option {name} must be a JSON object", given=text)
    return value
