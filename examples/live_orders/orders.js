// Two live queries of one collection, drawn. The server's address is in the address of the page.
const url = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8080";
const { connect } = await import(`${url}/tideline.js`);
const db = connect(url);
const orders = db.collection("orders");
const euros = (cents) => (cents / 100).toLocaleString("en", { minimumFractionDigits: 2 });
const body = (id) => document.querySelector(`#${id} tbody`);

function draw(into, rows, cells, keyOf, known) {
  into.replaceChildren(...rows.map((each) => {
    const row = document.createElement("tr");
    if (known && !known.has(keyOf(each))) row.className = "new";
    for (const each_cell of cells(each)) {
      const cell = row.insertCell();
      if (each_cell instanceof Node) cell.append(each_cell);
      else cell.textContent = each_cell;
      if (typeof each_cell === "string" && /^[\d.,]+$/.test(each_cell)) cell.className = "number";
    }
    return row;
  }));
}

function payButton({ id }) {
  const button = document.createElement("button");
  button.textContent = "paid";
  button.setAttribute("aria-label", `order ${id} is paid`);
  button.onclick = () => orders.update(id, { $set: { state: "paid" } }); // it leaves both tables by itself
  return button;
}

db.onstate = (state) => { document.querySelector("#state").textContent = state; };

let known = null;
const top = orders.watch({ state: "open" }, { sort: { total: -1 }, limit: 10 });
top.subscribe(() => {
  draw(body("top"), top.result, (order) => [`${order.id}`, order.shop, euros(order.total), payButton(order)], ({ id }) => id, known);
  known = new Set(top.result.map(({ id }) => id));
});

const shops = orders.watchGroups({ state: "open" }, { by: "shop", count: true, sum: "total" });
shops.subscribe(() => {
  const sorted = [...shops.result].sort((a, b) => a.shop.localeCompare(b.shop));
  draw(body("shops"), sorted, (group) => [group.shop, `${group.count}`, euros(group.sum_total)], ({ shop }) => shop);
});
