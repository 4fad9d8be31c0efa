"""One index over many standing conditions: which of them does a document meet?

    index.py     Standing: add, remove, matching, changes, explain
    clauses.py   a condition as clauses: checks, and ways to file them
    parts.py     what clauses are made of;  places.py   places in them
    filing.py    clauses as postings and a program
    tables.py    the arrays they lie in
    rows.py      documents for the kernel
    explain.py   how a condition is filed, in words

Below channels, collections and live queries, which all ask it the same question.
"""

from __future__ import annotations

from tideline.standing.index import ADD, CHANGE, REMOVE, Kinds, Pairs, Standing

__all__ = ["ADD", "CHANGE", "REMOVE", "Kinds", "Pairs", "Standing"]
