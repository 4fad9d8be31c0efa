"""A volume over the network: finds the leader, and goes on after it was killed.

    Client     calls a verb on the leader, again and again until it is done or `give_up_s` is over
    Attached   one volume with a cache of writes, as a disk has one: what an NBD server gives out

Writes of `Attached` return when they are in its memory; one thread sends them in order, many at
once; `flush` returns when all of them are on a majority of disks. That is what a disk promises a
file system, no more: without a flush, a killed client may lose its last writes (`write_back=False`:
every write waits).

A write whose outcome is not known is sent again, after the session was opened anew: then an order
of the session before, which may still be on its way to some node, is not applied any more.

Safe from any thread.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tideline.errors import Closed, Conflict, InvalidRequest, NotFound, TidelineError, Unavailable
from tideline.volume.wire import Stream, connect, parse_address

__all__ = ["Attached", "Client"]

_ATTEMPT_S = 10.0  # a node that says nothing for so long is left
_PAUSE_S = 0.05


class Client:
    """Calls the leader of a group.

    >>> Client(["127.0.0.1:1"], give_up_s=0).call("list")
    Traceback (most recent call last):
    tideline.errors.Unavailable: no node of the volume could do it. nodes=['127.0.0.1:1'], ...
    """

    def __init__(
        self, nodes: Sequence[str], *, secret: bytes = b"", tls: ssl.SSLContext | None = None,
        give_up_s: float = 60,
    ) -> None:  # fmt: skip
        """`nodes`: addresses of the services, those of all nodes or some."""
        if not nodes:
            raise InvalidRequest("at least one node has to be named", nodes=list(nodes))
        for node in nodes:
            parse_address(node)
        self.nodes = list(nodes)
        """As given, and those that nodes named since."""
        self.give_up_s = give_up_s
        self._secret, self._tls = secret, tls
        self._leader: str | None = None
        self._free: list[tuple[str, Stream]] = []
        self._lock = threading.Lock()
        self._closed = False

    def call(self, verb: str, *arguments: Any) -> Any:
        """What the leader answers."""
        return self.retry(lambda stream, first: stream.call(verb, list(arguments)))

    def call_node(self, address: str, verb: str, *arguments: Any) -> Any:
        """What one node answers, the leader or not."""
        try:
            stream = connect(parse_address(address), self._secret, self._tls, _ATTEMPT_S)
        except OSError as error:
            raise Unavailable(f"the node cannot be reached: {error}", node=address) from error
        try:
            return stream.call(verb, list(arguments))
        except OSError as error:
            raise Unavailable(f"the node does not answer: {error}", node=address) from error
        finally:
            stream.close()

    def retry(self, ask: Callable[[Stream, bool], Any]) -> Any:
        """Have `ask(stream to the leader, whether it is the first time)` answered.

        It is asked again after `Unavailable` and broken connections; other errors are raised.
        """
        limit = time.monotonic() + self.give_up_s
        first, last = True, "nobody leads"
        while True:
            self._check_open()
            address, stream = self._stream()
            if stream is not None:
                try:
                    answer = ask(stream, first)
                    self._give_back(address, stream)
                    return answer
                except (Unavailable, OSError) as error:
                    first, last = False, str(error)
                    stream.close()
                    self._forget()
                except TidelineError:
                    stream.close()
                    raise
            if time.monotonic() >= limit:
                raise Unavailable(
                    "no node of the volume could do it", nodes=self.nodes, last=last,
                    give_up_s=self.give_up_s,
                )  # fmt: skip
            time.sleep(_PAUSE_S * (0.5 + random.random()))

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the connection to the volume was closed")

    def _give_back(self, address: str, stream: Stream) -> None:
        with self._lock:
            if not self._closed:
                self._free.append((address, stream))
                return
        stream.close()

    def _stream(self) -> tuple[str, Stream | None]:
        with self._lock:
            if self._free:
                return self._free.pop()
            address = self._leader
        if address is None:
            address = self._find()
        if address is None:
            return "", None
        try:
            stream = connect(parse_address(address), self._secret, self._tls, 2)
            stream.sock.settimeout(_ATTEMPT_S)
            return address, stream
        except OSError:
            self._forget()
            return address, None

    def _find(self) -> str | None:
        """Who leads: asked of every node, and of those that they name."""
        for node in self.nodes:  # which may become more on the way
            try:
                stream = connect(parse_address(node), self._secret, self._tls, 2)
            except OSError:
                continue
            try:
                stream.sock.settimeout(2)
                hello = stream.call("hello", [])
            except (OSError, Unavailable):
                continue
            finally:
                stream.close()
            with self._lock:
                self.nodes += [at for at in hello["nodes"] if at not in self.nodes]
                if hello["leads"]:
                    self._leader = node
                    return node
        return None

    def _forget(self) -> None:
        """The leader is another one now, or not to be reached."""
        with self._lock:
            free, self._free, self._leader = self._free, [], None
        for _, stream in free:
            stream.close()

    def make(self, verb: str, *arguments: Any) -> None:
        """`add`, `snapshot` or `clone`, once, also when it had to be asked twice."""
        self.call(verb, *arguments, uuid.uuid4().hex)

    def delete(self, name: str) -> None:
        """Delete a volume or snapshot."""
        self._end("delete", name)

    def remove_node(self, number: int) -> None:
        """Let a node go."""
        self._end("remove_node", number)

    def _end(self, verb: str, which: str | int) -> None:
        """End something; when the answer was lost, it may be gone already."""

        def ask(stream: Stream, first: bool) -> None:
            try:
                stream.call(verb, [which])
            except NotFound:
                if first:
                    raise

        self.retry(ask)

    def close(self) -> None:
        """Let go of the connections."""
        self._closed = True
        self._forget()


class Attached:
    """One volume or snapshot, as a disk."""

    def __init__(
        self, client: Client, name: str, *, write_back: bool = True, cache_bytes: int = 16 << 20
    ) -> None:
        """Whoever wrote to the volume before cannot any more once this one has written."""
        self._client, self.name = client, name
        info = client.call("info", name)
        self.size_bytes, self.block_bytes = info["size_bytes"], info["block_bytes"]
        self.read_only = info["kind"] == "snapshot"
        self._me = uuid.uuid4().hex
        self._session: int | None = None  # from the first write on
        self._write_back, self._cache_bytes = write_back, cache_bytes
        self._change = threading.Condition()
        self._queue: deque[tuple[int, int, bytes | None]] = deque()  # offset, size, data or trim
        self._sending: list[tuple[int, int, bytes | None]] = []
        self._queued_bytes = 0
        self._asked = self._done = 0  # how many writes were taken, how many are on disk
        self._error: TidelineError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._send_all, name="volume writes", daemon=True)
        self._thread.start()

    # ---- what a disk does --------------------------------------------------------------------

    def read(self, offset: int, size: int) -> bytes:
        """Bytes, with all writes that returned before."""
        self._check(offset, size)
        with self._change:
            waiting = [*self._sending, *self._queue]
            behind = next(
                (at for at, (start, length, _) in enumerate(reversed(waiting))
                 if start < offset + size and offset < start + length), None,
            )  # fmt: skip
            if behind is not None:
                self._wait(self._asked - behind)
        data: bytes = self._client.call("read", self.name, offset, size, False)
        return data

    def write(self, offset: int, data: bytes, *, force: bool = False) -> None:
        """Write bytes; with `force` they are on a majority of disks when this returns."""
        self._check(offset, len(data))
        self._take(offset, len(data), bytes(data), force)

    def trim(self, offset: int, size: int, *, force: bool = False) -> None:
        """Bytes that read as zero from now on."""
        self._check(offset, size)
        self._take(offset, size, None, force)

    def flush(self) -> None:
        """Return when every write that returned before is on a majority of disks."""
        with self._change:
            self._wait(self._asked)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size_bytes:
            raise InvalidRequest(
                "these bytes are not in the volume",
                offset=offset, size=size, size_bytes=self.size_bytes,
            )  # fmt: skip

    def _take(self, offset: int, size: int, data: bytes | None, force: bool) -> None:
        if self.read_only:
            raise InvalidRequest("a snapshot is read only", name=self.name)
        if not size:
            return
        with self._change:
            while self._queued_bytes > self._cache_bytes and self._error is None:
                self._change.wait()
            if self._closed:
                raise Closed("the volume was closed", name=self.name)
            if self._error is not None:
                raise self._error
            self._queue.append((offset, size, data))
            self._queued_bytes += 0 if data is None else size
            self._asked += 1
            self._change.notify_all()
            if force or not self._write_back:
                self._wait(self._asked)

    def _wait(self, number: int) -> None:
        """Return when so many writes are done."""
        while self._done < number:
            if self._error is not None:
                raise self._error
            self._change.wait()
        if self._error is not None:
            raise self._error

    # ---- the thread that sends ---------------------------------------------------------------

    def _send_all(self) -> None:
        while True:
            with self._change:
                while not self._queue and not self._closed:
                    self._change.wait()
                if not self._queue:
                    return
                self._sending = batch = self._batch()
            try:
                self._send(batch)
            except TidelineError as error:
                self._fail(error)
                return
            except BaseException as error:
                self._fail(Unavailable(f"writes could not be sent: {error!r}", name=self.name))
                raise
            with self._change:
                self._done += len(batch)
                self._queued_bytes -= sum(len(data) for _, _, data in batch if data is not None)
                self._sending = []
                self._change.notify_all()

    def _fail(self, error: TidelineError) -> None:
        with self._change:
            self._error = error
            self._change.notify_all()

    def _batch(self) -> list[tuple[int, int, bytes | None]]:
        """The next writes, up to 4 MiB of them; or one trim."""
        batch: list[tuple[int, int, bytes | None]] = []
        used = 0
        while self._queue and used < 4 << 20 and len(batch) < 512:
            if self._queue[0][2] is None:
                return batch or [self._queue.popleft()]
            batch.append(self._queue.popleft())
            used += batch[-1][1]
        return batch

    def _send(self, batch: list[tuple[int, int, bytes | None]]) -> None:
        def ask(stream: Stream, first: bool) -> None:
            if self._session is None or not first:
                take = self._session is None
                self._session = stream.call("open", [self.name, self._me, take])
            offset, size, data = batch[0]
            if data is None:
                stream.call("trim", [self.name, self._session, offset, size])
            else:
                rows = [(start, piece) for start, _, piece in batch]
                stream.call("write", [self.name, self._session, rows])

        try:
            self._client.retry(ask)
        except Conflict:
            # Our own order to open, which was late, may have come after the one we know of.
            self._client.retry(lambda stream, first: ask(stream, False))

    def close(self) -> None:
        """Send what waits, and stop. The error of a write that failed is raised here, too."""
        try:
            self.flush()
        finally:
            with self._change:
                self._closed = True
                self._change.notify_all()
            self._thread.join(timeout=self._client.give_up_s + _ATTEMPT_S)
