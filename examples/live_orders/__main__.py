"""Orders come and go, and a page of JavaScript is told: `python examples/live_orders`."""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import tideline
from tideline.server import running

HERE = Path(__file__).resolve().parent
SHOPS = ("Berlin", "Lyon", "Porto", "Turin")


class Files(http.server.SimpleHTTPRequestHandler):
    """The files of this folder, told to nobody's terminal."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def page(port: int = 0) -> Iterator[str]:
    """The page, from a web server of its own; where."""
    handler = functools.partial(Files, directory=str(HERE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Shop:
    """Orders that come, and are paid after a while."""

    def __init__(self, orders: tideline.Collection, seed: int = 1) -> None:
        self.orders = orders
        self.draw = random.Random(seed)
        self.last = 0

    def next(self) -> None:
        """One order comes, and sometimes one is paid."""
        self.last += 1
        order = {"id": self.last, "shop": self.draw.choice(SHOPS), "state": "open"}
        self.orders.put(order | {"total": self.draw.randrange(500, 20_000)})
        if self.last > 30:
            paid = {"id": self.draw.randrange(1, self.last), "state": "open"}
            self.orders.update_many(paid, {"$set": {"state": "paid"}})


def main() -> int:
    options = argparse.ArgumentParser(prog="python examples/live_orders", description=__doc__)
    options.add_argument(
        "--port", type=int, default=8000, help="of the page; 8000, 0 is a free one"
    )
    options.add_argument("--rate", type=float, default=5, help="orders a second; 5")
    chosen = options.parse_args()
    if not chosen.rate > 0:
        options.error("--rate must be above 0")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            where = stack.enter_context(page(chosen.port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "no such port"
            options.error(f"port {chosen.port}: {why}; --port 0 takes a free one")
        db = stack.enter_context(tideline.open(Path(folder)))
        orders = db.collection("orders", key="id", indexes={"state": "lazy"})
        shop = Shop(orders)
        for _ in range(30):
            shop.next()
        server = stack.enter_context(running(db, origins=(where,)))
        print(f"open {where}/?server={server}  (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while not threading.Event().wait(1 / chosen.rate):
                shop.next()
        print(f"\n{shop.last} orders came")
    return 0


if __name__ == "__main__":
    sys.exit(main())
