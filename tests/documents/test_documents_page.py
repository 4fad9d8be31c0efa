"""docs/internals/documents.md says what the code does: its bytes are made again and compared."""

from __future__ import annotations

from pathlib import Path

from engine_model import open_engine, rows_of

from tideline.documents.payload import payload_parts
from tideline.index.sorted import BLOCK_BYTES
from tideline.kernels.documents.layout import GROUP, MEMORY_BLOCK
from tideline.where.keys import LIMIT, encode

PAGE = (Path(__file__).resolve().parents[2] / "docs/internals/documents.md").read_text("utf-8")
WRITES = [(1, {"id": 1, "n": 5}), (2, {"id": 2, "n": [7, "x"]}), (3, None)]


def test_the_bytes_of_values_are_those_on_the_page() -> None:
    values = (None, -1.5, 0, 1, 2**53, 2**53 + 1, "a", "é", False, True)
    lines = [f"{value!r:20} {encode(value).hex(' ')}\n" for value in values]
    assert "```\n" + "".join(lines) + "```" in PAGE
    assert f"cut after {LIMIT} bytes" in PAGE


def test_the_payload_is_the_one_on_the_page() -> None:
    payload = b"".join(payload_parts(rows_of(WRITES), 9))
    for start in range(0, 104, 8):
        assert f"\n{start:4d}  {payload[start : start + 8].hex(' ', 4)}" in PAGE
    assert payload[99:].decode() in PAGE


def test_the_component_is_the_one_on_the_page(tmp_path: Path) -> None:
    engine = open_engine(
        tmp_path / "c", {"indexes": {"n": "embedded"}, "filter": "n", "bloom_bits": 20}
    )
    engine.write(rows_of(WRITES))
    engine.seal()
    [reader] = engine.primary.readers
    table, info = reader.component.table, reader.component.info
    for row in table.to_pylist():
        values = ", ".join(value.hex(" ") for value in row["values.n"])
        line = f"{row['key'].hex(' ')}    {row['seq']}    {row['flags']}      "
        assert f"\n{line}{row['doc']:27} {values}".rstrip() + "\n" in PAGE
    for name, (start, size) in info.extra["side"].items():
        assert f"\n{name:14} {start:4d} {size:4d}" in PAGE
    assert list(info.filters) == ["seq", "wanted", "key", "zone.n"]
    assert f"groups of {GROUP} blocks" in PAGE
    assert f"zone maps of {MEMORY_BLOCK} rows" in PAGE
    assert f"about {BLOCK_BYTES >> 10} KiB of documents" in PAGE
    engine.close()
