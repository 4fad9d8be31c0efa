"""Peers that agree on writes: members hold what was put; what is not installed is named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import replication
from benchmarks.peers import replicated


def test_each_peer_that_is_installed_puts_the_same_texts_on_another_member(tmp_path: Path) -> None:
    for kind in replicated.PEERS:
        reason = replicated.missing(kind.name)
        if reason is not None:
            assert "install" in reason
            continue
        peer = kind(tmp_path)
        try:
            assert len(peer.single(5)) == 5
            assert peer.many(3, 4) > 0
            assert peer.batches(2, 100) > 0
            limit = time.monotonic() + 60
            while peer.held() != (217, True) and time.monotonic() < limit:
                time.sleep(0.05)
            assert peer.held() == (217, True), kind.name
        finally:
            peer.close()


def test_a_peer_that_is_not_there_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(replicated.importlib.util, "find_spec", lambda name: None)
    assert "grpc is not installed" in str(replicated.missing("etcd"))
    assert "pysyncobj is not installed" in str(replicated.missing("pysyncobj, as it comes"))
    monkeypatch.setattr(replicated.importlib.util, "find_spec", lambda name: name)
    assert replicated.missing("etcd") == "etcd is not installed: apt-get install etcd-server"
    assert replicated.missing("pysyncobj, as it comes") is None


def test_the_page_names_what_was_measured_and_what_was_left_out() -> None:
    row = {"durable": "fdatasync", "one at a time": [0.5] * 20, "many at once": [1234.0],
           "in requests": [5678.0]}  # fmt: skip
    found = {
        "facts": {"cores": "2"}, "missing": {"etcd": "etcd is not installed"},
        "beside": {"three nodes": row}, "one": {"events_per_s": 10.0},
        "three": {"events_per_s": 5.0, "stored": {"all": 2.0}, "failover_s": [2.5]},
    }  # fmt: skip
    page = replication.page(found)
    assert "| three nodes | fdatasync | 0.50 | 0.50 | 1,234 | 5,678 |" in page
    assert "- etcd is not there: etcd is not installed" in page
    assert "by one server: 50%." in page
