"""How two nodes prove to each other that they know the secret, before anything else is read.

    dialer   "TLn1" | sha256 of the cluster's name | from u32 | to u32 | 32 random bytes
    listener                                                 32 random bytes | proof 32
    dialer   proof 32
    listener "+"

    proof := HMAC-SHA256(secret, "listener" or "dialer" | all bytes before)
    key   := HMAC-SHA256(secret, "session" | hello | answer): every frame after is signed with it

Numbers are little-endian. Each proof covers who dialed whom, in which cluster, and the random bytes
of both, so none can be used again, elsewhere, or by the other side. All messages are of fixed
length: nothing that a stranger says is decoded. Who does not prove it is told nothing.

`TLS` hides what is said as well; the secret is needed with it, too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import ssl
import struct
from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass
from pathlib import Path

from tideline.errors import InvalidRequest, Unauthorized, Unavailable

__all__ = ["LEAST_SECRET", "TLS", "answer", "check_secret", "greet"]

_MAGIC = b"TLn1"
_HELLO = struct.Struct("<4s32sII32s")
_OK = b"+"
LEAST_SECRET = 16  # bytes


@dataclass(frozen=True)
class TLS:
    """The files of one node: its certificate and key, and the authority that signed everybody's.

    Both sides of a connection show a certificate of that authority. Names in certificates are not
    compared: who a node is, is said under the secret.
    """

    cert: Path | str
    key: Path | str
    ca: Path | str

    def context(self, *, server: bool) -> ssl.SSLContext:
        """For one side; `InvalidRequest` when the files are not what they should be."""
        side = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.cert, self.key)
            context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidRequest(
                "the TLS files of a node cannot be used", cert=str(self.cert), key=str(self.key),
                ca=str(self.ca), reason=str(error),
            ) from None  # fmt: skip
        return context


def check_secret(secret: bytes) -> bytes:
    """The secret of a cluster, if it is one."""
    if not isinstance(secret, bytes) or len(secret) < LEAST_SECRET:
        raise InvalidRequest(f"a cluster's secret is at least {LEAST_SECRET} bytes long")
    return secret


def _proof(secret: bytes, side: bytes, said: bytes) -> bytes:
    return hmac.digest(secret, side + said, "sha256")


def _hello(cluster: str, sender: int, to: int) -> bytes:
    name = hashlib.sha256(cluster.encode()).digest()
    return _HELLO.pack(_MAGIC, name, sender, to, secrets.token_bytes(32))


async def greet(
    reader: StreamReader, writer: StreamWriter, secret: bytes, cluster: str, me: int, peer: int
) -> bytes:
    """The dialer's side; returns the key of the session. `Unauthorized` when the other does not
    know the secret; `Unavailable` when it hangs up, which it does when it thinks so of us."""
    hello = _hello(cluster, me, peer)
    writer.write(hello)
    try:
        found = await reader.readexactly(64)
        said = hello + found[:32]
        if not hmac.compare_digest(found[32:], _proof(secret, b"listener", said)):
            raise Unauthorized("this node has another secret", node=peer)
        writer.write(_proof(secret, b"dialer", said + found[32:]))
        await reader.readexactly(1)
    except EOFError:
        raise Unavailable(
            "this node hung up: it stops, or has another secret, cluster or number", node=peer
        ) from None
    return _proof(secret, b"session", said)


async def answer(
    reader: StreamReader, writer: StreamWriter, secret: bytes, cluster: str, me: int
) -> tuple[int, bytes]:
    """The listener's side; returns who dialed and the key of the session. `Unauthorized` for
    whoever does not prove that it is a node of this cluster."""
    hello = await reader.readexactly(_HELLO.size)
    magic, name, peer, to, _ = _HELLO.unpack(hello)
    if magic != _MAGIC:
        raise Unauthorized("somebody who is no node called")
    if name != hashlib.sha256(cluster.encode()).digest():
        raise Unauthorized("a node of another cluster called", node=peer)
    if to != me or peer == me:
        raise Unauthorized("a node called that wanted another one", node=peer, wanted=to)
    mine = secrets.token_bytes(32)
    said = hello + mine
    proof = _proof(secret, b"listener", said)
    writer.write(mine + proof)
    try:
        theirs = await reader.readexactly(32)
    except EOFError:
        raise Unauthorized("a node hung up, as one with another secret does", node=peer) from None
    if not hmac.compare_digest(theirs, _proof(secret, b"dialer", said + proof)):
        raise Unauthorized("a node with another secret called", node=peer)
    writer.write(_OK)
    return peer, _proof(secret, b"session", said)
