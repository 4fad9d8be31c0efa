"""What Spark says when something goes wrong, in words a data engineer can use.

    said_by(error)          the first sentence of an error of Spark's; None for any other error
    understood(error, ...)  such an error as one of Tideline's, with what to do about it

Spark's errors carry a condition such as PATH_NOT_FOUND, a text, often a plan and a Java stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tideline import errors
from tideline.errors import (
    Closed,
    Conflict,
    InvalidRequest,
    NotFound,
    TidelineError,
    Unavailable,
)  # fmt: skip
from tideline.spark.failures import is_spark

if TYPE_CHECKING:
    from tideline.spark.pipeline.config import Config

__all__ = ["is_lost_worker", "said_by", "understandable", "understood"]

_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_JAVA = re.compile(r"^: ?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ", re.MULTILINE)
_CALLED = re.compile(r"^An error occurred while calling [\w.$]+\.?\s*")
_DEEPEST = re.compile(r"^Caused by: (?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.+)$", re.MULTILINE)
# A Python worker, an executor or a fetched block went away: the same task may well succeed.
_LOST = re.compile(
    r"Python worker (?:exited|died|failed to connect)|ExecutorLost|Lost executor|FetchFailed"
    r"|EOFException|MetadataFetchFailed|executor .{1,40} (?:lost|removed)"
)
_OURS = re.compile(r"tideline\.errors\.(\w+): (.+)")
_MODULES = {
    "kafka": "spark-sql-kafka-0-10_2.13",
    "avro": "spark-avro_2.13",
    "protobuf": "spark-protobuf_2.13",
}


def condition(error: BaseException) -> str:
    """Its condition, such as PATH_NOT_FOUND; empty when it has none."""
    asked = getattr(error, "getCondition", None)
    found = asked() if callable(asked) else None
    if found:
        return str(found)
    named = re.search(r"\[([A-Z][A-Z0-9_.]{4,})\]", str(error))
    return named[1] if named else ""


def said_by(error: BaseException) -> str | None:
    """The first sentence of an error of Spark's.

    >>> said_by(ValueError("no")) is None
    True
    """
    if not is_spark(error):
        return None
    text = _CALLED.sub("", str(error)).strip()
    text = _JAVA.sub("", text)
    text = _STATE.sub("", _CLASS.sub("", text.strip()))
    first = " ".join(line.strip() for line in text.splitlines()[:2] if line.strip())
    return first.split("\tat ")[0].strip().rstrip(".;") or type(error).__name__


def is_lost_worker(error: BaseException) -> bool:
    """Whether a worker was lost, so that it is worth trying again."""
    return is_spark(error) and _LOST.search(str(error)) is not None


@contextmanager
def understandable(config: Config) -> Iterator[None]:
    """Raise what Spark raises inside as an error of ours."""
    try:
        yield
    except Exception as error:
        said = understood(error, config)
        if said is None:
            raise
        raise said from error


def understood(error: BaseException, config: Config) -> TidelineError | None:
    """An error of Spark's as one of ours; None when it is not Spark's."""
    if isinstance(error, TidelineError):
        return error
    if not is_spark(error):
        return None
    what, text = condition(error), str(error)
    ours = _OURS.findall(text)
    if ours:
        return _from_store(*ours[-1])
    source = config.place_of("source", "format")
    for name in ("avro", "protobuf"):
        if f"{name.upper()}_NOT_LOADED" in what:
            return _not_loaded(name, config.place_of("parse", "format"))
    if "_DATA_SOURCE_NOT_ENABLED" in what or "DATA_SOURCE_NOT_FOUND" in what:
        return _no_format(config, source)
    if what == "PATH_NOT_FOUND" or "Path does not exist" in text:
        message = f"{config.place_of('source', 'path')}: there are no files at the source's path"
        return NotFound(message, path=config.source.path)
    if "UNABLE_TO_INFER_SCHEMA" in what:
        place = config.place_of("source", "path")
        return NotFound(
            f"{place}: no file at the source's path says which columns there are: "
            "wait for the first, or check the path", path=config.source.path,
        )  # fmt: skip
    if "streamReader is not implemented" in text:
        return InvalidRequest(f"{source}: Spark cannot follow it: set source.stream = false")
    if "FAILED_READ_FILE" in text or "FILE_NOT_EXIST" in text or "does not exist" in text:
        return Unavailable(
            "a file of the source is gone or damaged; put it back and start again: nothing of its "
            "batch was stored", said=_deepest(text),
        )  # fmt: skip
    if "maxResultSize" in text or "OutOfMemoryError" in text or "Java heap space" in text:
        return Unavailable(
            "a batch is too large for Spark's memory: give smaller batches (source.options "
            "maxFilesPerTrigger, maxBytesPerTrigger or maxOffsetsPerTrigger; smaller files), or "
            "more spark.memory", said=said_by(error),
        )  # fmt: skip
    if is_lost_worker(error):
        return Unavailable(
            "Spark lost a worker again and again; start again: nothing of this batch was stored",
            said=said_by(error),
        )  # fmt: skip
    if "KafkaException" in text or ("TimeoutException" in text and "kafka" in text.lower()):
        return Unavailable("Kafka cannot be reached; start again when it can", said=_deepest(text))
    return Unavailable("Spark could not read the source", said=_deepest(text))


def _from_store(kind: str, said: str) -> TidelineError:
    """What the store said to a task of Spark's."""
    found = getattr(errors, kind, None)
    if found is None or not issubclass(found, (Closed, Conflict, InvalidRequest)):
        found = Unavailable
    error: TidelineError = found(
        f"the store could not take the batch: {said.strip()}. Start the pipeline again when "
        "it can: nothing is lost"
    )
    return error


def _no_format(config: Config, place: str) -> TidelineError:
    from tideline.spark.pipeline.config import FILES, did_you_mean

    name = config.source.format
    if name not in _MODULES:
        close = did_you_mean(name, ["generator", "kafka", "rate", *FILES])
        return InvalidRequest(
            f"{place}: Spark knows no format {name!r}{close}; a connector is added by "
            "packages = [...] in [spark]"
        )
    return _not_loaded(name, place)


def _not_loaded(name: str, place: str) -> TidelineError:
    import pyspark

    package = f"org.apache.spark:{_MODULES[name]}:{pyspark.__version__}"
    return Unavailable(
        f"{place}: Spark's connector for {name} is not loaded; add to the config: "
        f'[spark] packages = ["{package}"]'
    )


def _deepest(text: str) -> str:
    """The innermost cause that an error names, or its first line."""
    causes = _DEEPEST.findall(text)
    said = causes[-1] if causes else next(iter(text.splitlines()), "")
    return _STATE.sub("", _CLASS.sub("", said)).strip()[:300]
