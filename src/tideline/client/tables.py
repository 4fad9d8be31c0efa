"""Tables over the wire: Arrow IPC streams, as docs/reference/http.md describes them.

pyarrow is loaded when the first table goes or comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tideline.errors import InvalidRequest, Unavailable
from tideline.model import Applied

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ARROW", "read_applied", "read_table", "table_bytes"]

ARROW = "application/vnd.apache.arrow.stream"


def table_bytes(table: Any) -> bytes:
    """A table of operations as one stream."""
    import pyarrow as pa

    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise InvalidRequest("apply takes a pyarrow Table", type=type(table).__name__)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    return memoryview(sink.getvalue())  # type: ignore[return-value]


def read_table(answer: Any) -> pa.Table:
    """The table of an answer."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(answer.data)) as stream:
        return stream.read_all()


def read_applied(answer: Any) -> Applied:
    """What `apply` answered: two streams, one after the other, and a header."""
    import pyarrow as pa

    source = pa.BufferReader(answer.data)
    try:
        answers = pa.ipc.open_stream(source).read_all()
        rejected = pa.ipc.open_stream(source).read_all()
    except pa.ArrowInvalid as error:
        raise Unavailable(f"the answer cannot be read: {error}") from None
    return Applied(answers, rejected, answer.headers.get("tideline-repeated") == "true")
