"""The benchmark of conditions asks everybody the same and gets the same answers."""

from __future__ import annotations

import pytest

pytest.importorskip("montydb")

from benchmarks.common import Results
from benchmarks.conditions import CONDITIONS, PEERS, predicate_page, predicate_section, write


def test_the_packages_agree_on_what_is_measured(tmp_path):
    outcome = predicate_section(rounds=1, count=60)
    assert list(outcome["conditions"]) == list(CONDITIONS)
    for name, line in outcome["conditions"].items():
        # mongoquery reads $nor with several conditions in a way of its own.
        excused = {"mongoquery"} if name == "ten clauses" else set()
        assert {"ours", *PEERS} - set(line["right"]) <= excused, name
        assert 0 < line["share"] < 1, name
    assert "| a comparison |" in predicate_page(outcome)
    results = Results(tmp_path, "conditions")
    results.put("predicate", outcome)
    assert "## One body" in write(results).read_text()
