"""What the core knows of sizes, beside a list of them."""

from __future__ import annotations

from random import Random

from tideline.replica import DATA, NOBODY, Ballot, Entry, Mark, Members, Outline


def test_sizes_are_those_of_a_list() -> None:
    r = Random(1)
    outline = Outline(Mark(0, NOBODY, Members(())))
    sizes: dict[int, int] = {}
    for step in range(2000):
        kind = r.choice(["append"] * 6 + ["truncate", "rebase"])
        kept = range(outline.base.index + 1, outline.last + 1)
        if kind == "append" or len(kept) < 3:
            size = r.choice([0, 1, 5, 100])
            sizes[outline.last + 1] = size
            outline.append(Entry(outline.last + 1, Ballot(1, 1, 1), DATA, bytes(size)))
        elif kind == "truncate" and step % 3 == 0:
            outline.truncate(r.choice(kept))
        elif kind == "rebase" and step % 5 == 0:
            outline.rebase(outline.mark(r.choice(kept)))
        kept = range(outline.base.index + 1, outline.last + 1)
        outline.holes = {r.choice(kept)} if kept and r.random() < 0.2 else set()
        if kept:
            first, last, limit = r.choice(kept), r.choice(kept), r.randint(0, 300)
            assert outline.fit(first, last, limit) == fit(sizes, outline, first, last, limit)
            back = [
                sum(sizes[i] for i in range(at, last + 1)) <= limit for at in kept if at <= last
            ]
            assert outline.count_back(last, limit) == sum(back)


def fit(sizes: dict[int, int], outline: Outline, first: int, last: int, limit: int) -> int:
    used = 0
    for index in range(first, last + 1):
        used += sizes[index]
        if index in outline.holes or (used > limit and index > first):
            return index - 1
    return last
