"""The view of live tables, in a real browser: rows move as writes come, the network can be cut.

Every test looks at both ends: what the page shows, and what `find` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from javascript import wait_for
from test_looks import BESIDE

SHOPS = ["Albany", "Buffalo", "Utica"]
SHOWN = """(number) => [...document.querySelectorAll(`#query-${number} tbody tr`)]
  .map((row) => [...row.cells].map((cell) => cell.textContent))"""
SLIDES = "document.querySelector('#query-1').getAnimations({ subtree: true })"


class Tables:
    """The view of live tables, and the collection that it shows."""

    def __init__(self, screen: Any, orders: Any) -> None:
        self.screen, self.page, self.orders = screen, screen.page, orders

    def wait_for(self, number: int, rows: list[list[str]]) -> None:
        """Wait until a table shows these rows, in this order."""
        self.page.wait_for_function(
            f"([number, rows]) => JSON.stringify(({SHOWN})(number)) === JSON.stringify(rows)",
            arg=[number, rows],
        )

    def keys(self) -> list[str]:
        """The keys in the first table."""
        return [row[0] for row in self.page.evaluate(SHOWN, 1)]

    def wait_for_keys(self, keys: list[Any]) -> None:
        self.page.wait_for_function(
            f"(keys) => String(({SHOWN})(1).map(([key]) => key)) === String(keys)", arg=keys
        )

    def ask(self, number: int, **fields: str) -> None:
        """Fill in a form and ask."""
        for name, text in fields.items():
            self.page.fill(f"#{name}-{number}", text)
        self.page.click(f"#query-{number} button[type=submit]")

    def top(self) -> list[Any]:
        return [order["id"] for order in self.orders.find(sort=[("total", -1)], limit=10)]


@pytest.fixture
def opened(open_screen: Callable[..., Any], served: Any) -> Callable[..., Tables]:
    """`opened(**options of a browser context)`: the view, on thirty orders."""
    orders = served.db.collection("orders", key="id", journal_s=600, journal_before=True)
    orders.put_many(
        [
            {"id": n, "shop": SHOPS[n % 3], "total": n * 10, "state": "open" if n % 2 else "sent"}
            for n in range(1, 31)
        ]
    )

    def factory(path: str = "/#tables", **options: Any) -> Tables:
        tables = Tables(open_screen(path, **options), orders)
        tables.wait_for_keys(tables.top())
        return tables

    return factory


def test_rows_slide_to_their_new_places(opened: Callable[..., Tables]) -> None:
    tables = opened()
    page, orders = tables.page, tables.orders
    shop = [[name, "5", f"{sum(n for n in range(1, 31, 2) if n % 3 == i) * 10:,}"]
            for i, name in enumerate(SHOPS)]  # fmt: skip
    tables.wait_for(2, shop)
    page.evaluate(
        """() => { globalThis.slid = new Set(); const look = () => {
          for (const { effect } of document.querySelector('#query-1')
            .getAnimations({ subtree: true })) slid.add(effect.target.dataset.key);
          requestAnimationFrame(look); }; look(); }"""
    )
    mark = page.locator("#query-1 tbody tr").last
    mark.evaluate("(row) => { row.dataset.same = 'yes'; }")
    key = tables.keys()[-1]
    orders.update(int(key), {"$set": {"total": 5000}})
    tables.wait_for_keys(tables.top())
    assert tables.keys()[0] == key
    assert page.locator("#query-1 tbody tr").first.get_attribute("data-same") == "yes"
    assert page.locator("#query-1 tbody tr").first.locator("td.changed").all_inner_texts() == [
        "5,000"
    ]
    page.wait_for_function("(key) => slid.has(`[${key}]`)", arg=key)
    orders.delete(int(key))
    orders.update(1, {"$set": {"shop": "Ithaca"}})
    tables.wait_for_keys(tables.top())
    page.wait_for_selector("#query-2 tbody tr >> text=Ithaca")
    assert page.get_attribute("#query-1", "data-state") == "open"


def test_who_wants_less_motion_sees_none(opened: Callable[..., Tables]) -> None:
    tables = opened(reduced_motion="reduce")
    tables.page.evaluate(
        "() => { globalThis.most = 0; const look = () => {"
        f" most = Math.max(most, {SLIDES}.length); requestAnimationFrame(look); }}; look(); }}"
    )
    for n in (21, 22, 23):
        tables.orders.update(n, {"$set": {"total": 1000 + n}})
        tables.wait_for_keys(tables.top())
    assert tables.page.evaluate("most") == 0
    assert tables.page.locator("td.changed").count() > 0


def test_a_query_is_edited_and_one_that_is_wrong_is_explained(
    opened: Callable[..., Tables],
) -> None:
    tables = opened()
    page = tables.page
    wrong = [
        ({"where": '{"total": {"$gtt": 3}}'}, "where", "did you mean $gt"),
        ({"where": "{total: 3}"}, "where", "not JSON"),
        ({"where": "[3]"}, "where", "JSON object"),
        ({"where": "", "sort": "total:down"}, "sort", "FIELD:-1"),
        ({"sort": "total", "limit": "-3"}, "limit", "limit"),
    ]
    for fields, at, said in wrong:
        tables.ask(1, **fields)
        tables.screen.wait_for_text("#query-1-error", said)
        assert page.get_attribute(f"#{at}-1", "aria-invalid") == "true"
        tables.orders.update(30, {"$inc": {"total": 1}})  # the one before goes on
        page.wait_for_selector(f"#query-1 td >> text={tables.orders.get(30)['total']}")
    tables.ask(1, where='{"shop": "Utica"}', sort="total", limit="2", offset="1")
    tables.wait_for_keys([5, 8])
    assert page.inner_text("#query-1-error") == ""
    page.fill("#where-1", '{"shop": "Albany"}')
    page.press("#where-1", "Enter")
    tables.wait_for_keys([6, 9])
    page.check("#query-1 input[value=groups]")
    tables.ask(1, where="", by="state, shop", sum="")
    page.wait_for_function("() => document.querySelectorAll('#query-1 tbody tr').length === 6")
    wanted = {"state", "shop", "count"}
    assert set(page.locator("#query-1 th").all_inner_texts()) == wanted
    wait_for(lambda: tables.orders.hub.count == 2)  # what was asked before is gone


def test_a_cut_network_goes_on_without_a_gap(opened: Callable[..., Tables]) -> None:
    tables = opened()
    page, orders = tables.page, tables.orders
    page.click("#cut")
    tables.screen.wait_for_text("#cut", "Connect again")
    page.wait_for_selector("#status[data-state=cut]")
    page.wait_for_selector("#query-1[data-state=away]")
    before = tables.keys()
    for n in range(1, 11):
        orders.update(n, {"$set": {"total": 1000 + n}})
    assert tables.keys() == before
    tables.ask(2, by="state")
    tables.screen.wait_for_text("#query-2-error", "when the network is back")
    page.click("#cut")
    tables.wait_for_keys(tables.top())
    tables.screen.wait_for_text("#network-said", "no gap")
    # Ten writes: each an add and a remove in the first table, five a change in the second.
    tables.screen.wait_for_text("#network-said", "from version 30 to 40: 25 missed changes")
    page.wait_for_selector("#query-2 tbody tr >> text=open")
    orders.update(11, {"$set": {"total": 3000}})
    tables.wait_for_keys(tables.top())


def test_the_tabs_are_tabs(opened: Callable[..., Tables], served: Any) -> None:
    tables = opened(path="/?collection=orders#tables")
    page = tables.page
    assert page.get_attribute("#tab-tables", "aria-selected") == "true"
    assert not page.is_visible("#map")
    page.focus("#tab-tables")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#map")
    page.wait_for_selector("#status[data-state=open]")
    assert page.evaluate("document.activeElement.id") == "tab-map"
    assert not page.is_visible("#view-tables")
    assert page.is_visible("#channel")
    tables.orders.update(3, {"$set": {"total": 777}})  # while the map is in front
    served.roads.publish((-75.0, 43.0), {"kind": "fire"}, ttl_s=600)
    tables.screen.wait_for_text("#live-events", "1")
    wait_for(lambda: tables.orders.hub.count == 0)  # what is hidden costs nothing
    page.go_back()
    page.wait_for_selector("#view-tables")
    page.wait_for_selector("#query-1[data-state=open]")
    tables.wait_for_keys(tables.top())
    assert page.is_visible("#collection")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") != ""


def test_the_figures_are_facts(opened: Callable[..., Tables]) -> None:
    tables = opened()
    page = tables.page
    other = tables.orders.watch({"total": 7})
    page.wait_for_function("() => document.querySelector('#standing').textContent === '3'")
    other.cancel()
    page.wait_for_function("() => document.querySelector('#standing').textContent === '2'")
    number = "(id) => parseFloat(document.querySelector(id).textContent.replace(',', ''))"
    page.evaluate(
        """async () => { const { connect } = await import('/tideline.js');
          const orders = connect().collection('orders');
          let total = 9000;
          setInterval(() => {
            orders.update(30, { $set: { total: total++, at: Date.now() } });
          }, 50); }"""
    )
    for name in ("rate-writes", "rate-bytes", "shown-p99", "shown-p50"):
        page.wait_for_function(f"(id) => ({number})(id) > 0", arg=f"#{name}")


def test_a_collection_that_is_dropped_and_made_again_is_watched_again(
    opened: Callable[..., Tables], served: Any
) -> None:
    tables = opened()
    tables.screen.expected += ["404"]
    served.db.drop_collection("orders")
    tables.page.wait_for_selector("#query-1:not([data-state=open])")
    tables.orders = served.db.collection("orders", key="id")
    tables.orders.put({"id": 5, "total": 7})
    tables.wait_for_keys([5])


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_screen_needs_no_sideways_scrolling(
    opened: Callable[..., Tables], width: int
) -> None:
    tables = opened(viewport={"width": width, "height": 740}, has_touch=True, is_mobile=True)
    page = tables.page
    for kind in ("groups", "rows"):
        page.check(f"#query-1 input[value={kind}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(BESIDE, width) == []


def test_nothing_jumps_when_things_happen(opened: Callable[..., Tables]) -> None:
    tables = opened()
    page = tables.page
    boxes = """['.tables .figures', '.network', '#query-1', '#query-2', '.rows', '#query-2 th']
      .map((name) => { const box = document.querySelector(name).getBoundingClientRect();
        return [name, box.x, box.y, box.width]; })"""
    before = page.evaluate(boxes)
    tables.orders.put({"id": 99, "shop": "long " * 30, "total": 10**9, "state": "open"})
    tables.wait_for_keys(tables.top())
    tables.ask(1, where='{"$nope": 1}')
    tables.screen.wait_for_text("#query-1-error", "$nope")
    page.click("#cut")
    tables.screen.wait_for_text("#network-said", "Cut at version")
    assert page.evaluate(boxes) == before


def test_texts_are_readable_in_both_themes(opened: Callable[..., Tables]) -> None:
    """4.5 to 1 or more between every text and what is behind it, as WCAG AA asks."""
    from test_looks import CONTRAST

    for scheme in ("light", "dark"):
        tables = opened(color_scheme=scheme)
        tables.orders.update(30, {"$inc": {"total": 1}})
        tables.page.wait_for_selector("td.changed")
        assert tables.page.evaluate(CONTRAST) == []
        tables.page.click("#cut")  # and the mouse stays on it
        tables.page.wait_for_selector("#query-2[data-state=away]")
        assert tables.page.evaluate(CONTRAST) == []


def test_every_control_has_a_name(opened: Callable[..., Tables]) -> None:
    unnamed = opened().page.evaluate(
        """[...document.querySelectorAll('input, textarea, button, select')]
          .filter((node) => node.offsetParent && !(node.textContent.trim() || node.ariaLabel
            || node.labels?.length))
          .map((node) => node.outerHTML)"""
    )
    assert unnamed == []


def test_a_token_is_asked_for(open_screen: Callable[..., Any], served: Any) -> None:
    from tideline.server.tokens import Tokens

    orders = served.db.collection("orders", key="id")
    orders.put_many([{"id": 1, "shop": "Utica", "total": 3}, {"id": 2, "shop": "Ithaca"}])
    secret, _ = Tokens(served.db.path).create(
        ["read:orders"], user="ann", rows={"orders": {"shop": "Utica"}}
    )
    served.stop()
    served.start()  # it has tokens now
    screen = open_screen(None)
    screen.expected = ["401"]
    page = screen.page
    page.goto(f"{served.url}/#tables")
    page.click("#token-cancel")
    page.click("#tables-token")
    page.fill("#token", secret)
    page.click("#token-form >> text=Use it")
    Tables(screen, orders).wait_for_keys([1])
    orders.put({"id": 3, "shop": "Utica", "total": 4})
    orders.put({"id": 4, "shop": "Ithaca", "total": 5})
    Tables(screen, orders).wait_for_keys([3, 1])
