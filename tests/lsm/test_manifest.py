"""A manifest is the old document or the new one, and never a damaged one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import few

from tideline.errors import Corruption, InvalidRequest, Unavailable
from tideline.lsm.files import checksum
from tideline.lsm.manifest import Manifest

DOCUMENT = {
    "format": 1,
    "components": [
        {
            "name": "c-000007.arrow",
            "kind": "sorted",
            "rows": 3,
            "size_bytes": 482,
            "crc": 1103270420,
            "filters": {"key": [1, 3]},
            "extra": {},
        }
    ],
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@pytest.fixture
def manifest(tmp_path):
    return Manifest(tmp_path / "MANIFEST")


def test_nothing_saved_is_none(manifest):
    assert manifest.load() is None


@given(document=st.dictionaries(st.text(), json_values))
@settings(max_examples=few(50), deadline=None)
def test_what_is_saved_is_loaded(document, tmp_path_factory):
    path = tmp_path_factory.mktemp("manifest") / "MANIFEST"
    Manifest(path).save(document)
    assert Manifest(path).load() == document


def test_the_bytes_are_the_documented_ones(manifest):
    manifest.save(DOCUMENT)
    page = Path(__file__).parents[2] / "docs/internals/components.md"
    assert f"```\n{manifest.path.read_text()}\n```" in page.read_text()


def test_every_flipped_byte_is_found(manifest):
    manifest.save(DOCUMENT)
    good = manifest.path.read_bytes()
    for offset in range(len(good)):
        for mask in (0x01, 0x20, 0x80, 0xFF):  # 0x20 changes the case of a hex digit
            bad = bytearray(good)
            bad[offset] ^= mask
            manifest.path.write_bytes(bad)
            with pytest.raises(Corruption, match="MANIFEST"):
                manifest.load()


def test_every_truncation_and_any_addition_is_found(manifest):
    manifest.save(DOCUMENT)
    good = manifest.path.read_bytes()
    for bad in [good[:length] for length in range(len(good))] + [good + b"\n", good + b"\0"]:
        manifest.path.write_bytes(bad)
        with pytest.raises(Corruption, match="MANIFEST"):
            manifest.load()


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff"])
def test_a_body_that_is_no_document_is_corruption(manifest, body):
    manifest.path.write_bytes(b"tideline-manifest 1 %08x %d\n" % (checksum(body), len(body)) + body)
    with pytest.raises(Corruption, match="not"):
        manifest.load()


def test_another_format_is_named(manifest):
    manifest.path.write_bytes(b"tideline-manifest 2 whatever\n{}")
    with pytest.raises(Corruption, match="format is not known"):
        manifest.load()


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes"], ids=repr)
def test_what_is_not_json_is_refused_and_the_old_stays(manifest, value):
    manifest.save({"n": 1})
    with pytest.raises(InvalidRequest, match="JSON"):
        manifest.save({"value": value})
    assert manifest.load() == {"n": 1}


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_one(manifest, monkeypatch, step):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    manifest.save({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(Unavailable, match="disk is full"):
            manifest.save({"n": 2})
    assert manifest.load() == {"n": 1}
    assert os.listdir(manifest.path.parent) == ["MANIFEST"]
    manifest.save({"n": 3})
    assert manifest.load() == {"n": 3}


def test_a_folder_that_cannot_be_synced_puts_the_manifest_in_doubt(manifest, monkeypatch):
    def fail(folder):
        raise OSError(errno.EIO, "Input/output error")

    manifest.save({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr("tideline.lsm.manifest.sync_folder", fail)
        with pytest.raises(Unavailable, match="could not be synced"):
            manifest.save({"n": 2})
    with pytest.raises(Unavailable, match="reopen"):
        manifest.save({"n": 3})
    assert Manifest(manifest.path).load() == {"n": 2}


def test_a_half_written_temporary_file_does_not_count(manifest):
    manifest.save({"n": 1})
    manifest.path.with_name("MANIFEST.tmp").write_bytes(b"tideline-man")
    assert manifest.load() == {"n": 1}
    manifest.save({"n": 2})
    assert os.listdir(manifest.path.parent) == ["MANIFEST"]
