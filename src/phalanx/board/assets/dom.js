// Elements and words. Names of runs, classes and files become text nodes: none of them is ever read as markup.

/** An element: h("a", {href: "#/", class: "x", onclick: f}, "text", child). */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else if (name === "class") element.className = value;
    else if (["value", "checked", "disabled", "selected"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const replace = (element, ...children) => element.replaceChildren(...children.flat(3).filter(Boolean));

export const percent = (share, digits = 2) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)} %`);

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7)) return value.toExponential(2);
  const text = Number(value.toPrecision(digits));
  return Math.abs(text) >= 1000 ? Math.round(value).toLocaleString("en") : String(text);
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function ago(t) {
  if (!t) return "–";
  const s = Date.now() / 1000 - t;
  if (s < 5) return "now";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [length, unit] = units.find(([length]) => s >= 2 * length) ?? [1, "s"];
  return `${Math.round(s / length)} ${unit} ago`;
}

export const when = (t) => (t ? new Date(1000 * t).toLocaleString("sv").slice(0, 16) : "–");
export const clock = (t) => (t ? new Date(1000 * t).toLocaleTimeString("sv") : "–");

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${unit ? count.toPrecision(3) : count} ${units[unit]}`;
}

/** A state as a coloured dot and its word; the shape differs too, for who does not see the colour. */
export function badge(state, why = "") {
  const signs = { running: "▶", waiting: "◌", finished: "✓", stopped: "■", failed: "✕", killed: "✕", silent: "…", damaged: "!" };
  return h("span", { class: `badge ${/^[a-z]+$/.test(state) ? state : ""}`, title: why }, h("i", { "aria-hidden": "true" }, signs[state] ?? "·"), state);
}

/** A line as a small picture. */
export function spark(values, width = 72, height = 20) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  if (values.length > 1) {
    const low = Math.min(...values), high = Math.max(...values);
    const points = values.map((v, n) => `${(1 + (n * (width - 2)) / (values.length - 1)).toFixed(1)},${(height - 2 - ((v - low) / (high - low || 1)) * (height - 4)).toFixed(1)}`);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", points.join(" "));
    svg.append(line);
  }
  return svg;
}

/** Buttons of which one is pressed. */
export function choice(label, options, chosen, onchange) {
  const group = h("span", { class: "choice", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    const button = h("button", { type: "button", "aria-pressed": String(value === chosen), "data-value": value, onclick: () => {
      for (const one of group.children) one.setAttribute("aria-pressed", String(one === button));
      onchange(value);
    } }, text);
    group.append(button);
  }
  return group;
}

/** A word of a shell: names come from folders that may be somebody else's, and are never commands. */
export const quoted = (text) => (/^[\w@%+=:,.~\/][\w@%+=:,.~\/-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** A command to type elsewhere, with a button that copies it. */
export function command(text) {
  const button = h("button", { class: "small", onclick: async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { button.textContent = "select it"; }
  } }, "copy");
  return h("pre", { class: "command" }, h("span", {}, text), button);
}

/** What the user chose before, in this browser. */
export const kept = {
  get(name, otherwise) {
    try { return JSON.parse(localStorage.getItem(`phalanx.${name}`)) ?? otherwise; } catch { return otherwise; }
  },
  set(name, value) {
    try { localStorage.setItem(`phalanx.${name}`, JSON.stringify(value)); } catch { /* private windows may refuse */ }
  },
};
