"""Hot loops of standing conditions: a group of kernels of its own (kernels/__init__.py).

    layout.py   where things stand: the table, lists, postings, programs, a call
    values.py   hashes and tokens; what lies at the columns of a row
    table.py    filing a condition and taking it out
    checks.py   the checks that a kernel can decide
    tokens.py   the tokens of a document, and their slots
    match.py    which conditions the rows of a call meet

docs/internals/standing.md tells how they work together. Python sees to it that what an address
leads to stays where it is during a call.
"""
