"""Kernels of indexes on text: what a text is made of, runs of postings, and searching them.

    folding.py   texts of JSON documents as folded words or folded text
    tokens.py    folded texts -> tokens: words, or grams of some characters
    runs.py      tokens -> runs: sorted by token, with the entries of each; runs made of runs
    lists.py     which entries of runs have what is asked for
    dictionary.py  which words are near another
    window.py    which entries in a window have words near those asked for

A *token* is a word or a gram, known by a hash of 63 bits. An *entry* is one text of one document;
entries are numbered in the order of their seqs. A *posting* is an entry and the position in it.
"""

from __future__ import annotations
