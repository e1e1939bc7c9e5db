// The page: which view is shown, keys, light and dark, and asking for news every two seconds.

import { h, kept, replace } from "./dom.js";
import { CompareView } from "./compare.js";
import { RunView } from "./run.js";
import { RunsView } from "./runs.js";

const EVERY_MS = 2000;
const place = document.getElementById("view");
const live = document.getElementById("live");
let view = null;

function route() {
  const [kind, first, second] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (kind === "run" && view instanceof RunView && view.key === first) return view.show(second);
  view?.close?.();
  if (kind === "run") view = new RunView(first, second);
  else if (kind === "compare") view = new CompareView((first ?? "").split(",").filter(Boolean));
  else view = new RunsView();
  replace(place, view.element);
  replace(document.getElementById("crumbs"), ...(view.crumbs?.() ?? []));
  scrollTo(0, 0);
  return refresh();
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

let busy = false;
async function refresh() {
  if (busy) return;
  busy = true;
  const asked = view;
  try {
    await asked.refresh();
    if (asked === view) performance.mark("shown"); // for benchmarks.board
    live.textContent = "live";
    live.className = "live on";
    live.title = "news every two seconds";
  } catch (error) {
    live.textContent = error instanceof TypeError ? "no server" : "error";
    live.className = "live off";
    live.title = error.message;
    if (!(error instanceof TypeError)) asked.fail?.(error.message);
  } finally {
    busy = false;
  }
  if (asked !== view) await refresh();
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  kept.set("theme", theme);
  dispatchEvent(new Event("themechange"));
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  setTheme(now === "dark" ? "light" : "dark");
}

const help = document.getElementById("keys");
addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input, textarea, select");
  if (event.key === "Escape") { field?.blur(); return; }
  if (field || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const common = {
    "?": () => help.showModal(),
    t: switchTheme,
    u: () => { location.hash = "#/"; },
    "/": () => view.element.querySelector("input[type=search]")?.focus(),
  };
  const action = common[event.key] ?? view.keys?.[event.key];
  if (action) { event.preventDefault(); action(); }
});

document.getElementById("help").addEventListener("click", () => help.showModal());
document.getElementById("theme").addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
const theme = kept.get("theme", null);
if (theme === "dark" || theme === "light") setTheme(theme);
addEventListener("hashchange", route);
addEventListener("unhandledrejection", (event) => { live.textContent = "error"; live.title = String(event.reason); });
setInterval(() => { if (!document.hidden) refresh(); }, EVERY_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
route();
