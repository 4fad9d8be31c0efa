"""The health check of the image (Containerfile): whether `tideline serve` works, as it is run here.

    python3 healthcheck.py          the first `tideline serve` that runs here
    python3 healthcheck.py PID      that process

Address, port and TLS are read from the server's command line. Exit code 0: it answers and is well,
or what runs is no server; 1: it does not, or says that it is not.
"""

from __future__ import annotations

import ssl
import sys
import urllib.request
from argparse import ArgumentParser
from pathlib import Path

TIMEOUT_S = 4
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def options_of(process: str) -> list[str] | None:
    """What stands behind `tideline serve` in a process' command line; None: no such server."""
    try:
        words = (Path("/proc") / process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended
        return None
    before, serve, after = words.rstrip("\0").partition("\0serve\0")
    return after.split("\0") if serve and "tideline" in before else None


def url_of(options: list[str]) -> str:
    """Where a server with these options tells how it is.

    >>> url_of(["/data", "--host", "0.0.0.0", "--port", "9000"])
    'http://127.0.0.1:9000/healthz'
    >>> url_of(["/data", "--port=8443", "--tls-cert", "cert.pem", "--host", "::"])
    'https://[::1]:8443/healthz'
    """
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="8080")
    parser.add_argument("--tls-cert")
    given, _ = parser.parse_known_args(options)
    host = EVERYWHERE.get(given.host, given.host)
    host = f"[{host}]" if ":" in host else host
    return f"http{'s' if given.tls_cert else ''}://{host}:{given.port}/healthz"


def main(process: str | None) -> None:
    """Ask the server; an exception is exit code 1."""
    all_here = sorted((p.name for p in Path("/proc").glob("[0-9]*")), key=int)
    found = [options_of(each) for each in ([process] if process else all_here)]
    servers = [options for options in found if options is not None]
    if not servers:
        return
    trusting = ssl.create_default_context()  # the certificate is for the name programs use
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    asking = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting)
    )
    asking.open(url_of(servers[0]), timeout=TIMEOUT_S).close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
