// Small helpers around the document. Text from the server is set as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** element("li", {class: "card"}, "text", child) */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Set a text only when it differs: a screen reader hears changes, not repeats. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Show an error at a field, or with "" none. */
export function setError(field, text) {
  setText(byId(`${field.id}-error`), text);
  if (text) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}

/** "14:03:07" of a time as the server writes it. */
export function clockTime(text) {
  return text ? new Date(text).toLocaleTimeString("en-GB") : "";
}

/** Seconds since 1970 of a time as the server writes it; Infinity for none. */
export function seconds(time) {
  return time === null || time === undefined ? Infinity : Date.parse(time) / 1000;
}
