/* What the copy button takes of a Python session: the code without its prompts and output. */
addEventListener("click", ({ target }) => {
  const button = target.closest?.(".md-clipboard, [data-md-type=copy]");
  const code = button?.closest(".language-pycon")?.querySelector("code");
  if (!code) return;
  const lines = code.innerText.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line));
  button.dataset.clipboardText = lines.map((line) => line.slice(4)).join("\n");
}, true);
