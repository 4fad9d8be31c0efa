"""What went wrong in a job of Spark, as an error of ours.

    with failures("the archive could not be counted"):
        frame.toArrow()

Spark's errors carry a stack of Java and of the worker's Python; what a person needs of it is the
last line of the deepest one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tideline.errors import Unavailable

__all__ = ["failures", "is_spark", "reason"]

# The last line of a traceback stands at the margin; so do the first lines of Java's causes.
_PYTHON = re.compile(
    r"^(?:E\s+)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Request|Found)?: .+)$"
)
_JAVA = re.compile(r"^Caused by: (?:[\w$]+\.)+[\w$]+: (.+)$", re.MULTILINE)


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Turn what Spark raises inside into `Unavailable` with the reason."""
    try:
        yield
    except Exception as error:
        if not is_spark(error):
            raise
        raise Unavailable(what, reason=reason(str(error))) from None


def is_spark(error: BaseException) -> bool:
    """Whether an error is one of Spark's."""
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def reason(text: str) -> str:
    r"""The line of an error of Spark's that says why.

    >>> reason("Lost task.\nTraceback (most recent call last):\n  ...\nOSError: disk full\n\tat a")
    'OSError: disk full'
    >>> reason("Job aborted.\nCaused by: java.io.IOException: file is damaged\n\tat b")
    'file is damaged'
    >>> reason("Job aborted due to stage failure.")
    'Job aborted due to stage failure.'
    """
    after = text.rpartition("Traceback (most recent call last):")[2]
    if after != text:
        for line in after.splitlines():
            found = _PYTHON.match(line)
            if found:
                return found[1]
    causes = _JAVA.findall(text)
    return str(causes[-1]) if causes else text.strip().splitlines()[0]
