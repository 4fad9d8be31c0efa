// Light or dark: what the system prefers, unless the switch was used. A plain script, loaded before the
// page is painted, so that the page never flashes in the other colours.
(() => {
  const saved = () => { try { return localStorage.getItem("tideline.theme"); } catch { return null; } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    document.documentElement.dataset.theme = saved() ?? (system.matches ? "dark" : "light");
    document.dispatchEvent(new Event("tideline:theme"));
  };
  show();
  system.addEventListener("change", show);
  globalThis.tidelineSwitchTheme = () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    // Back to the system's choice is back to following it.
    const follows = other === (system.matches ? "dark" : "light");
    try {
      if (follows) localStorage.removeItem("tideline.theme");
      else localStorage.setItem("tideline.theme", other);
    } catch { /* without storage the switch lasts until the page is left */ }
    document.documentElement.dataset.theme = other;
    document.dispatchEvent(new Event("tideline:theme"));
  };
})();
