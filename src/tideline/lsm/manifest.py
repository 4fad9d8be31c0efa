"""The manifest: one JSON document that says what counts.

    file   := header "\\n" body
    header := "tideline-manifest 1 " crc32(body), 8 hex digits " " size of body, decimal
    body   := the document as JSON, ASCII

Invariants:
1. The file is the old document or the new one, whole: it is written under a
   temporary name, fsynced, renamed, and the folder is fsynced.
2. Any changed byte is `Corruption`: the header must be, byte for byte, the one that
   `save` would write for the body that is there.
3. A component or log segment counts only once the manifest names it.

One thread at a time may `save`; `load` is safe from any thread.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tideline.errors import Corruption, InvalidRequest, Unavailable
from tideline.lsm.files import checksum, replace_file, sync_folder, unavailable

__all__ = ["BEGINNING", "Manifest"]

BEGINNING = b"tideline-manifest "
"""How every manifest begins, of whatever version."""

_PREFIX = BEGINNING + b"1 "


class Manifest:
    """A document replaced as a whole.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> manifest = Manifest(Path(folder.name) / "MANIFEST")
    >>> manifest.load() is None
    True
    >>> manifest.save({"format": 1})
    >>> manifest.load()
    {'format': 1}
    >>> folder.cleanup()
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._unsure = False

    def load(self) -> dict[str, Any] | None:
        """The document, or `None` when nothing was ever saved."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(error, "manifest cannot be read", self.path) from error
        header, newline, body = content.partition(b"\n")
        if not newline or header != _header(body):
            if header.startswith(BEGINNING) and not header.startswith(_PREFIX):
                # It may be a newer release's file or a damaged digit: either way, not ours to read.
                raise Corruption("manifest format is not known here", file=self.path)
            raise Corruption("manifest is damaged: its checksum differs", file=self.path)
        try:
            document = json.loads(body)
        except ValueError as error:
            raise Corruption("manifest is not JSON", file=self.path) from error
        if not isinstance(document, dict):
            raise Corruption("manifest is not a document", file=self.path)
        return document

    def save(self, document: dict[str, Any]) -> None:
        """Replace the document; after an error the old one stays.

        The one exception: when the disk fails after the rename, it is not known which
        of the two a power cut would leave. Every later `save` is then refused.
        """
        if self._unsure:
            raise Unavailable(
                "manifest is in doubt after a failed fsync: reopen", file=str(self.path)
            )
        try:
            body = json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")
        except (TypeError, ValueError) as error:
            raise InvalidRequest("manifest must be JSON", reason=str(error)) from error
        try:
            replace_file(self.path, _header(body) + b"\n" + body)
        except OSError as error:
            raise unavailable(error, "manifest write failed", self.path) from error
        try:
            sync_folder(self.path.parent)
        except OSError as error:
            self._unsure = True
            raise unavailable(error, "manifest could not be synced", self.path) from error


def _header(body: bytes) -> bytes:
    return _PREFIX + b"%08x %d" % (checksum(body), len(body))
