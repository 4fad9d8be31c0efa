"""Points in clusters: a function of their numbers, and boxes that hold about what was asked for."""

from __future__ import annotations

import numpy as np

from tideline.workload.clusters import Clusters

COUNT = 200_000


def test_parts_make_the_whole() -> None:
    clusters = Clusters(seed=3)
    whole = np.array(clusters.points(0, 1_000))
    parts = np.concatenate([np.array(clusters.points(n, 100)) for n in range(0, 1_000, 100)], 1)
    assert (whole == parts).all()
    assert (whole != np.array(Clusters(seed=4).points(0, 1_000))).any()


def test_boxes_hold_about_what_was_asked_for() -> None:
    clusters = Clusters(seed=3)
    lon, lat = clusters.points(0, COUNT)
    for hits in (10, 1_000):
        boxes = clusters.boxes(300, hits=hits, of=COUNT)
        found = [
            int(((lon >= w) & (lon <= e) & (lat >= s) & (lat <= n)).sum()) for w, s, e, n in boxes
        ]
        assert hits / 2 < np.mean(found) < 2 * hits
        assert np.median(found) > hits / 3
