"""A server process for tests that kill it: `python serving.py FOLDER PORT`.

Says "ready" when it listens, and ends when its input does.
"""

from __future__ import annotations

import sys

import tideline
from tideline.server import running


def main() -> None:
    folder, port = sys.argv[1], int(sys.argv[2])
    with tideline.open(folder) as db, running(db, port=port):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
