"""The tree of a condition: what it means, apart from how it is evaluated.

    node := All(node, ...)                      all hold; All() always holds
          | Compare(field, operator, value)     a field against a value

Values are canonical JSON values (`values.canonical`). Nodes are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["All", "Compare", "Node"]


@dataclass(frozen=True, slots=True)
class Compare:
    """A top-level field against a value; `operator` is a name in `OPERATORS`."""

    field: str
    operator: str
    value: object


@dataclass(frozen=True, slots=True)
class All:
    """Every child holds."""

    nodes: tuple[Node, ...]


Node = All | Compare
