"""Conditions: the `where` of a subscription or a search, MongoDB's query documents.

    parse.py       a document or its JSON text  ->  a `Condition`, checked and within limits
    build.py       a checked document  ->  the tree; one builder an operator
    tree.py        the tree: what a condition means, apart from how it is evaluated
    operators.py   the table of operators: names, what they take, examples
    values.py      JSON values: brackets, equality, order, canonical form
    geo.py         operands and tests of places;  words.py of words;  grams.py of
                  pieces of text;  patterns.py of patterns
    predicate.py   target: the tree as a Python predicate on one body
    column.py      target: a filter on a Spark frame (with exact.py, said.py, schema.py, rows.py)
    bounds.py      target: what each field must be, for planners and indexes
    order.py       sort keys, in the order the comparisons use
    reference.py   target: docs/reference/conditions.md, written from the table

A new operator is a row in `operators.OPERATORS` and a builder in `build.BUILDERS`; if it needs
a new test in the tree, every target learns that too. A new target is a module that walks the
tree. Imports nothing above itself. Everything here is immutable and safe from any thread.
"""

from __future__ import annotations

from tideline.where.parse import ALWAYS, Condition, parse, parse_text

__all__ = ["ALWAYS", "Condition", "parse", "parse_text"]
