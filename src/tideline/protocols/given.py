"""What is handed to verbs: places, conditions, documents and their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from tideline.space import Box, Circle, MultiPolygon, Polygon

__all__ = [
    "Body",
    "Document",
    "Durability",
    "Fields",
    "Given",
    "Indexes",
    "Key",
    "Names",
    "Place",
    "Sort",
    "Where",
]


Place: TypeAlias = str | Sequence[float] | Circle | Box | Polygon | MultiPolygon | Mapping[str, Any]
"""Where: a name or path, (lon, lat), a shape, or a mapping: GeoJSON or {"lon", "lat"}."""
Body: TypeAlias = Mapping[str, Any] | Sequence[Any] | str | int | float | bool | datetime | None
"""What an event says: anything that has JSON."""
Durability: TypeAlias = Literal["os", "disk"]
"""What an acknowledged write survives: a killed process, or a power cut too."""
Where: TypeAlias = dict[str, Any]
"""A condition: a query document of MongoDB's."""
Key: TypeAlias = int | str
Document: TypeAlias = dict[str, Any]
Given: TypeAlias = Document | str | bytes
"""A document as it is given: a dict, or JSON text."""
Names: TypeAlias = str | Sequence[str] | None
"""A field, or several."""
Fields: TypeAlias = Sequence[str] | dict[str, int] | None
"""Which fields of documents are wanted: ["speed"], or {"text": 0} for all but these."""
Sort: TypeAlias = Any
"""[("time", -1), ...]: 1 up, -1 down."""
Indexes: TypeAlias = Mapping[str, str | Mapping[str, Any] | None] | Sequence[str]
"""Fields with the kind of their index, or fields alone."""
