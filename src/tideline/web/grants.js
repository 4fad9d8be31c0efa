// The view "Access": who may use this server. For tokens that are admin of everything.
//
//   GET /v1/tokens, every few seconds     what there is, never a secret
//   POST /v1/tokens                       a new one; its text is shown once, in a dialog, and then forgotten here, too
//   DELETE /v1/tokens/ID                  after a question
//
// A server without tokens says so: there everybody may do everything, and the first token is made where the folder is.

import { askAgain, askAnother } from "./access.js";
import { bytes, short } from "./charts.js";
import { byId, clockTime, element, setText } from "./dom.js";
import { Looking } from "./looking.js";

const EVERY_MS = 3000;
const SCOPES = ["read", "publish", "subscribe", "write", "admin"];
const count = (limit) => limit.toLocaleString("en-US");
const LIMITS = {
  rate_per_s: ["Operations a second of one token", count], connections_per_caller: ["Connections of one token", count],
  connections: ["Connections of all", count], subscriptions_per_user: ["Open subscriptions of a user in a channel", count],
  conditions_per_user: ["Clauses of a user's standing conditions in a channel (a pattern counts more)", count],
  watches_per_caller: ["Live queries of one token", count], body_bytes: ["A request body", bytes], batch_bytes: ["A body of many rows", bytes],
};
const OPEN = "This server runs without tokens: whoever reaches it may do everything. To ask for tokens, make the first one where the folder of the " +
  "database is, with `tideline token create FOLDER --scope admin`. From then on everybody needs one.";

export class Tokens extends Looking {
  #listed = "";
  #revoking = null;

  constructor(onstate) {
    super("access", onstate, EVERY_MS);
    byId("grant").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#create();
    });
    byId("grant").addEventListener("input", () => this.#wrong(""));
    byId("made-copy").addEventListener("click", () => this.#copy());
    byId("made-dialog").addEventListener("close", () => { byId("made-text").value = ""; });
    byId("revoke-dialog").addEventListener("close", () => this.#revoke());
    byId("revoke-cancel").addEventListener("click", () => byId("revoke-dialog").close(""));
    this.look();
  }

  async enter() {
    askAgain();
    if (await askAnother()) location.reload(); // all views begin again, with the new one
  }

  async ask(stands) {
    const found = await this.db.request("GET", "/v1/tokens");
    if (!stands()) return;
    this.onstate("open");
    this.say(found.required ? "" : OPEN);
    byId("access-token").hidden = true;
    byId("access-all").hidden = false;
    byId("access-tokens").hidden = !found.required;
    this.#list(found.tokens);
    this.#limits(found.limits);
  }

  failed(error) {
    const forbidden = error.status === 403;
    const denied = super.failed(error) || forbidden;
    if (forbidden) {
      this.say("Tokens are for admins: this needs a token with the scope admin, of everything and of no one user.");
      this.onstate("open");
      byId("access-token").hidden = false;
    }
    if (denied) byId("access-all").hidden = true;
    return denied;
  }

  // ---- the list -----------------------------------------------------------------------------------

  #list(tokens) {
    const now = JSON.stringify(tokens);
    if (now === this.#listed) return; // so that a button keeps the focus
    this.#listed = now;
    const focused = document.activeElement?.id;
    byId("access-rows").replaceChildren(...tokens.map((each) => {
      const { id, name, scopes, user, rows, made, connections, yours } = each;
      const cells = [
        ["May", scopes.join(", ")], ["User", user ?? "any"], ["Documents", rows ? JSON.stringify(rows) : user ? "none" : "all"],
        ["Made", made.slice(0, 10)], ["Connections", short(connections)],
      ].map(([label, text]) => element("td", { "data-label": label }, text));
      const button = element("button", { type: "button", id: `revoke-${id}`, "aria-label": `Revoke ${name || id}`, click: () => this.#ask(each) }, "Revoke");
      return element("tr", {},
        element("th", { scope: "row" }, element("span", {}, name || "no name"), " ", element("code", {}, id), ...(yours ? [" ", element("span", { class: "tag yours" }, "yours")] : [])),
        ...cells, element("td", { class: "act" }, button));
    }));
    if (focused?.startsWith("revoke-")) byId(focused)?.focus();
  }

  #limits(limits) {
    byId("access-limits").replaceChildren(...Object.entries(LIMITS).filter(([name]) => name in limits).map(([name, [label, text]]) =>
      element("div", {}, element("dt", {}, label), element("dd", {}, text(limits[name])))));
  }

  // ---- a new one ----------------------------------------------------------------------------------

  async #create() {
    const only = byId("grant-only").value.split(/[\s,]+/).filter(Boolean);
    const kinds = SCOPES.filter((scope) => byId(`grant-${scope}`).checked);
    const text = byId("grant-rows").value.trim();
    let rows = null;
    if (!kinds.length) return this.#wrong("Choose at least one thing that it may do.");
    try {
      rows = text === "" ? null : JSON.parse(text);
    } catch (error) {
      return this.#wrong(`The documents are not JSON: ${error.message}`, "grant-rows");
    }
    const user = byId("grant-user").value.trim();
    const body = {
      scopes: only.length ? kinds.flatMap((kind) => only.map((name) => `${kind}:${name}`)) : kinds,
      name: byId("grant-name").value.trim(), ...(user ? { user } : {}), ...(rows === null ? {} : { rows }),
    };
    byId("grant-go").disabled = true; // two clicks make one token
    try {
      const { token: secret, made } = await this.db.request("POST", "/v1/tokens", { body });
      byId("grant").reset();
      this.#wrong("");
      byId("made-text").value = secret;
      setText(byId("made-what"), `${made.name || made.id}: ${made.scopes.join(", ")}${made.user ? `, for ${made.user} alone` : ""}`);
      setText(byId("made-said"), "");
      byId("made-dialog").showModal();
      byId("made-text").select();
      this.look();
    } catch (error) {
      this.#wrong(error.message, error.message.startsWith("rows") ? "grant-rows" : undefined);
    } finally {
      byId("grant-go").disabled = false;
    }
    return undefined;
  }

  #wrong(text, field) {
    setText(byId("grant-error"), text);
    for (const id of ["grant-rows"]) {
      if (id === field) byId(id).setAttribute("aria-invalid", "true");
      else byId(id).removeAttribute("aria-invalid");
    }
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(byId("made-text").value);
      setText(byId("made-said"), `Copied at ${clockTime(new Date().toISOString())}.`);
    } catch { // not allowed, or not over plain HTTP
      byId("made-text").select();
      setText(byId("made-said"), "Copy it with the keyboard: it is selected.");
    }
  }

  // ---- revoking -----------------------------------------------------------------------------------

  #ask(found) {
    this.#revoking = found;
    const { id, name, connections, yours } = found;
    setText(byId("revoke-what"), `${name ? `${name} (${id})` : id} will be worthless at once` +
      `${connections ? `, and its ${connections} open connection${connections === 1 ? " is" : "s are"} closed` : ""}.` +
      `${yours ? " It is the token that you use: this page will ask for another one." : ""}`);
    byId("revoke-dialog").returnValue = "";
    byId("revoke-dialog").showModal();
  }

  async #revoke() {
    const found = this.#revoking;
    this.#revoking = null;
    if (!found || byId("revoke-dialog").returnValue !== "revoke") return;
    try {
      await this.db.request("DELETE", `/v1/tokens/${found.id}`);
    } catch (error) {
      this.say(error.message);
      setTimeout(() => this.look(), EVERY_MS * 2);
      return;
    }
    this.look();
  }
}
