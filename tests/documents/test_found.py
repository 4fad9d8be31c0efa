"""What a view has: of each key the newest version that is in it, newest first, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tideline
from tideline.documents.reader import Readers
from tideline.index.spatialview import SpatialAsk
from tideline.kernels.documents import layout as at
from tideline.where.keys import encode
from tideline.where.tree import Inside


def test_an_old_view_sees_what_was_replaced_since() -> None:
    with tideline.open(":memory:") as db:
        made = db.collection("cars", key="id", indexes={"at": "spatial", "n": "lazy"})
        made.put_many([{"id": key, "at": [key / 100, 0.5], "n": 1} for key in range(200)])
        made._engine.seal()
        made.put_many([{"id": key, "at": [key / 100, 0.5], "n": 1} for key in range(100, 300)])
        views = [made._engine.view()]
        for key in (5, 150, 250, 5, 150, 250, 400):
            made.put({"id": key, "at": [key / 100, 9.5], "n": 2})
            views.append(made._engine.view())
        made.delete(250)
        views.append(made._engine.view())
        asks: dict[str, Any] = {
            "at": SpatialAsk(Inside("box", (-1.0, 0.0, 9.0, 1.0))),
            "n": views[0].kind_of("n").range_ask(encode(1), encode(1)),
        }
        for view in views:
            for field, ask in asks.items():
                found = view.search(field, ask)
                scanned = list(view.scan())
                wanted = [
                    seq for part in scanned
                    for seq, text in zip(part.seqs.tolist(), part.docs, strict=True)
                    if b'"n":1' in text
                ]  # fmt: skip
                assert found.seqs.tolist() == sorted(wanted, reverse=True)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 33, 100, 5_000])
@pytest.mark.parametrize("span", [1, 2, 300, 200_000, 1 << 22, 1 << 40, (1 << 62) - 1])
def test_what_was_found_is_put_in_order_each_once(count: int, span: int) -> None:
    reader = Readers(7).make()
    seqs = np.random.default_rng(count).integers(0, span, count)
    reader.room_for(count)
    reader._out[:3, :count] = seqs * 3, seqs * 5, seqs
    for k in (None, 1, 40):
        reader._out[:3, :count] = seqs * 3, seqs * 5, seqs
        reader._state[at.S_OUT_COUNT] = count
        wanted = np.unique(seqs)[::-1][:k]
        assert reader.settle(k, False) == len(wanted)
        found = reader._out[:3, : len(wanted)]
        assert found.tolist() == [(wanted * 3).tolist(), (wanted * 5).tolist(), wanted.tolist()]
