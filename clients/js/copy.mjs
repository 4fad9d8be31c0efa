// Puts the client's one source, src/tideline/web, and the licence into the package while it is packed.

import { cpSync, rmSync } from "node:fs";

const root = new URL("../../", import.meta.url);
const parts = { "tideline.js": "src/tideline/web/", tideline: "src/tideline/web/", LICENSE: "" };

for (const [name, folder] of Object.entries(parts)) {
  const copy = new URL(name, import.meta.url);
  rmSync(copy, { recursive: true, force: true });
  if (process.argv[2] !== "--remove") cpSync(new URL(folder + name, root), copy, { recursive: true });
}
