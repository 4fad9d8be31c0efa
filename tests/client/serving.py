"""A server process for tests that kill it: `python serving.py FOLDER PORT`.

Says "ready" and its address when it listens, and ends when its input does. Port 0 is a free one.
"""

from __future__ import annotations

import sys

import tideline
from tideline.server import running


def main() -> None:
    folder, port = sys.argv[1], int(sys.argv[2])
    with tideline.open(folder) as db, running(db, port=port) as url:
        print(f"ready {url}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
