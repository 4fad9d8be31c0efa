"""Conditions: the `where` of a subscription or a search, MongoDB's query documents.

    parse.py       a document or its JSON text  ->  a tree, checked and within limits
    tree.py        the tree: what a condition means, apart from how it is evaluated
    operators.py   the table of operators: names, what they take, examples
    values.py      JSON values: brackets, equality, canonical form
    predicate.py   target: the tree as a Python predicate on one body
    reference.py   target: docs/reference/conditions.md, written from the table

A new operator is a row in `operators.OPERATORS` and a builder in every target;
a new target is a module that walks the tree. Imports nothing above itself.
Everything here is immutable and safe from any thread.
"""

from __future__ import annotations

from tideline.where.parse import ALWAYS, Condition, parse, parse_text

__all__ = ["ALWAYS", "Condition", "parse", "parse_text"]
