"""Serve the orders on loopback: `python examples/orders_web [--port 8000] [--folder data]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> int:
    options = argparse.ArgumentParser(prog="python examples/orders_web", description=__doc__)
    options.add_argument("--port", type=int, default=8000, help="8000; 0 is any free one")
    options.add_argument("--folder", type=Path, help="keep the orders there; else none are kept")
    chosen = options.parse_args()
    try:
        import uvicorn
        from app import app
    except ModuleNotFoundError as missing:
        print(f"error: this needs {missing.name}: pip install fastapi uvicorn", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TIDELINE_FOLDER", str(chosen.folder or folder))
        uvicorn.run(app, port=chosen.port, log_level="info", access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
