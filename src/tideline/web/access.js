// The token of this tab: kept in sessionStorage, asked for when the server refuses.

import { byId, setText } from "./dom.js";

const KEPT = "tideline.token";
let declined = false; // who says "not now" is not asked again until they want to
let asking = null; // two connections that are refused at once ask once

/** The token to show, and another one when the server refuses it. */
export async function token(refused) {
  const used = sessionStorage.getItem(KEPT);
  if (!refused) return used;
  if (declined) return null;
  asking ??= ask(used ? refused.message : "").finally(() => { asking = null; });
  const given = await asking;
  declined = given === null;
  if (!declined) sessionStorage.setItem(KEPT, given);
  return given;
}

/** Ask for another token than the one in use; whether there is one now. */
export async function askAnother() {
  const given = await ask("");
  if (given) sessionStorage.setItem(KEPT, given);
  return Boolean(given);
}

/** Whoever declined wants to be asked again. */
export function askAgain() { declined = false; }

/** Ask for a token; resolves to null when the reader has none. */
function ask(message) {
  const dialog = byId("token-dialog");
  setText(byId("token-error"), message);
  byId("token").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    byId("token-cancel").onclick = () => dialog.close("");
    dialog.onclose = () => resolve(dialog.returnValue === "use" ? byId("token").value.trim() : null);
    dialog.returnValue = "";
  });
}
