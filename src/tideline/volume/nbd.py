"""An NBD server: volumes as disks for programs that know the protocol (nbdfuse, qemu, the kernel).

    handshake    fixed newstyle: EXPORT_NAME, GO, INFO, LIST, ABORT
    commands     READ, WRITE, DISC, FLUSH, TRIM, WRITE_ZEROES; flag FUA; answers are simple replies

One thread a connection reads requests in order. Writes go into the cache of `Attached` at once;
what may wait (reads, flushes, FUA) is done by a few threads, and answered in any order, as the
protocol allows. Connections to one export share its `Attached`, so a flush covers all of them.

The protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from tideline.errors import InvalidRequest, TidelineError
from tideline.volume.wire import Stream, listen, parse_address

__all__ = ["Disk", "NbdServer"]

_log = logging.getLogger("tideline.volume")
_OPTION = struct.Struct(">8sII")
_ANSWER = struct.Struct(">QIII")
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
_EXPORT_NAME, _ABORT, _LIST, _INFO, _GO = 1, 2, 3, 6, 7
_ACK, _SERVER, _INFO_REPLY = 1, 2, 3
_UNSUPPORTED, _INVALID, _UNKNOWN = (1 << 31) + 1, (1 << 31) + 3, (1 << 31) + 6
_READ, _WRITE, _DISC, _FLUSH, _TRIM, _ZEROES = 0, 1, 2, 3, 4, 6
_FUA = 1
_HAS_FLAGS, _READ_ONLY, _SEND_FLUSH, _SEND_FUA = 1, 2, 4, 8
_SEND_TRIM, _SEND_ZEROES, _MULTI = 32, 64, 256
_MOST_BYTES = 32 << 20
_WORKERS = 8


class Disk(Protocol):
    """What is exported."""

    size_bytes: int
    block_bytes: int
    read_only: bool

    def read(self, offset: int, size: int) -> bytes: ...
    def write(self, offset: int, data: bytes, *, force: bool = False) -> None: ...
    def trim(self, offset: int, size: int, *, force: bool = False) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class NbdServer:
    """Gives out disks by name. `open_disk("")` is the default export."""

    def __init__(
        self, address: str, open_disk: Callable[[str], Disk], names: Callable[[], list[str]]
    ) -> None:
        """Listen at once."""
        self._open_disk, self._names = open_disk, names
        self._server = listen(parse_address(address))
        found = self._server.getsockname()
        self.address = f"unix:{found}" if isinstance(found, str) else f"{found[0]}:{found[1]}"
        self._lock = threading.Lock()
        self._disks: dict[str, tuple[Disk, int]] = {}
        self._streams: set[Stream] = set()
        self._threads: set[threading.Thread] = set()
        threading.Thread(target=self._accept, name="nbd", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(Stream(sock),), daemon=True)
            self._threads.add(thread)
            thread.start()

    def _serve(self, stream: Stream) -> None:
        self._streams.add(stream)
        try:
            if stream.sock.family != socket.AF_UNIX:
                stream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            chosen = self._handshake(stream)
            if chosen is not None:
                name, disk = chosen
                try:
                    _Session(stream, disk).run()
                finally:
                    self._leave(name)
        except (OSError, struct.error):
            pass  # the client left
        except TidelineError as error:
            _log.warning("connection ended: %s", error)
        finally:
            self._streams.discard(stream)
            stream.close()
            self._threads.discard(threading.current_thread())

    # ---- which disk --------------------------------------------------------------------------

    def _enter(self, name: str) -> Disk:
        with self._lock:
            disk, users = self._disks.get(name, (None, 0))
            if disk is None:
                disk = self._open_disk(name)
            self._disks[name] = disk, users + 1
            return disk

    def _leave(self, name: str) -> None:
        with self._lock:
            disk, users = self._disks.pop(name)
            if users > 1:
                self._disks[name] = disk, users - 1
                return
            with contextlib.suppress(TidelineError):
                disk.close()

    def _handshake(self, stream: Stream) -> tuple[str, Disk] | None:
        sock = stream.sock
        sock.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))  # fixed newstyle, no zeroes
        no_zeroes = struct.unpack(">I", stream.exactly(4))[0] & 2
        while True:
            magic, option, size = _OPTION.unpack(stream.exactly(_OPTION.size))
            if magic != b"IHAVEOPT" or size > 1 << 16:
                return None
            data = stream.exactly(size)
            if option == _EXPORT_NAME:
                name = data.decode("utf-8", "replace")
                disk = self._enter(name)  # an error ends the connection: this option has no answer
                sock.sendall(struct.pack(">QH", disk.size_bytes, _flags(disk)))
                sock.sendall(b"" if no_zeroes else bytes(124))
                return name, disk
            if option in (_GO, _INFO):
                found = self._go(sock, option, data)
                if found is not None and option == _GO:
                    return found
            elif option == _LIST:
                for name in self._names():
                    raw = name.encode()
                    _say(sock, option, _SERVER, struct.pack(">I", len(raw)) + raw)
                _say(sock, option, _ACK)
            elif option == _ABORT:
                _say(sock, option, _ACK)
                return None
            else:
                _say(sock, option, _UNSUPPORTED)

    def _go(self, sock: socket.socket, option: int, data: bytes) -> tuple[str, Disk] | None:
        size = struct.unpack_from(">I", data)[0] if len(data) >= 4 else -1
        if not 0 <= size <= len(data) - 6:
            _say(sock, option, _INVALID)
            return None
        name = data[4 : 4 + size].decode("utf-8", "replace")
        try:
            disk = self._enter(name)
        except TidelineError as error:
            _say(sock, option, _UNKNOWN, str(error).encode())
            return None
        _say(sock, option, _INFO_REPLY, struct.pack(">HQH", 0, disk.size_bytes, _flags(disk)))
        sizes = struct.pack(">HIII", 3, 1, disk.block_bytes, _MOST_BYTES)
        _say(sock, option, _INFO_REPLY, sizes)
        _say(sock, option, _ACK)
        if option == _INFO:
            self._leave(name)
        return name, disk

    def close(self) -> None:
        """Stop: what clients wrote is brought to disk first."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for stream in list(self._streams):
            with contextlib.suppress(OSError):
                stream.sock.shutdown(socket.SHUT_RD)  # answers that are under way still go out
        for thread in list(self._threads):
            thread.join(timeout=30)


def _flags(disk: Disk) -> int:
    flags = _HAS_FLAGS | _SEND_FLUSH | _SEND_FUA | _MULTI
    return flags | (_READ_ONLY if disk.read_only else _SEND_TRIM | _SEND_ZEROES)


def _say(sock: socket.socket, option: int, kind: int, data: bytes = b"") -> None:
    sock.sendall(_ANSWER.pack(0x3E889045565A9, option, kind, len(data)) + data)


class _Session:
    """One connection after its handshake."""

    def __init__(self, stream: Stream, disk: Disk) -> None:
        self._stream, self._disk = stream, disk
        self._sending = threading.Lock()

    def run(self) -> None:
        """Until the client leaves."""
        with ThreadPoolExecutor(_WORKERS) as pool:
            while True:
                head = _REQUEST.unpack(self._stream.exactly(_REQUEST.size))
                magic, flags, kind, cookie, offset, size = head
                if magic != _REQUEST_MAGIC or (kind == _WRITE and size > _MOST_BYTES):
                    return
                data = self._stream.exactly(size) if kind == _WRITE else b""
                if kind == _DISC:
                    return
                if kind in (_WRITE, _TRIM, _ZEROES) and not flags & _FUA:
                    self._do(flags, kind, cookie, offset, size, data)
                else:
                    pool.submit(self._do, flags, kind, cookie, offset, size, data)

    def _do(self, flags: int, kind: int, cookie: int, offset: int, size: int, data: bytes) -> None:
        disk, found, code = self._disk, b"", 0
        force = bool(flags & _FUA)
        try:
            if kind == _READ:
                if size > _MOST_BYTES:
                    raise InvalidRequest("a read is too large", size=size)
                found = disk.read(offset, size)
            elif kind == _WRITE:
                disk.write(offset, data, force=force)
            elif kind in (_TRIM, _ZEROES):
                disk.trim(offset, size, force=force)
            elif kind == _FLUSH:
                disk.flush()
            else:
                code = errno.EINVAL
        except InvalidRequest as error:
            code = errno.EPERM if disk.read_only else errno.EINVAL
            _log.warning("request refused: %s", error)
        except TidelineError as error:
            code = errno.EIO
            _log.warning("request failed: %s", error)
        except Exception:
            code = errno.EIO
            _log.exception("request failed")
        with self._sending, contextlib.suppress(OSError):
            self._stream.sock.sendall(_REPLY.pack(_REPLY_MAGIC, code, cookie) + found)
