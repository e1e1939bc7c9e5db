// The table of runs.

import { get } from "./api.js";
import { ago, badge, h, kept, number, percent, replace, span, spark, when } from "./dom.js";
import { slowness } from "./job.js";

const COLUMNS = [
  ["", null, "pick"],
  ["state", (r) => r.state],
  ["run", (r) => r.name, "name"],
  ["recipe", (r) => r.recipe],
  ["best", (r) => r.best, "num"],
  ["last", (r) => r.last, "num"],
  ["", null, "curve"],
  ["steps/s", (r) => r.steps_per_s, "num"],
  ["progress", (r) => (r.total_steps ? r.step / r.total_steps : null)],
  ["hosts", (r) => r.hosts.length],
  ["since", (r) => r.since],
];

export class RunsView {
  constructor() {
    this.rows = [];
    this.cells = new Map(); // key → {row, text}
    this.picked = new Set(kept.get("picked", []));
    this.sort = kept.get("sort", { column: "since", down: true });
    this.state = null;
    this.focus = null;
    this.filter = h("input", { type: "search", placeholder: "Filter by name, recipe, model, tag, host", "aria-label": "filter", value: kept.get("filter", ""), oninput: () => { kept.set("filter", this.filter.value); this.draw(); } });
    this.chips = h("span", { class: "chips" });
    this.compare = h("button", { class: "primary", disabled: true, onclick: () => this.open() }, "Compare");
    this.clear = h("button", { hidden: true, onclick: () => { this.picked.clear(); this.pickedChanged(); } }, "Clear");
    this.body = h("tbody");
    this.head = h("tr");
    this.empty = h("p", { class: "quiet pad" }, "Reading the runs …");
    this.problems = h("div");
    this.element = h("section", {}, this.problems,
      h("div", { class: "tools" }, this.filter, this.chips, h("span", { class: "grow" }), this.clear, this.compare),
      h("div", { class: "scroll" }, h("table", { class: "runs" }, h("thead", {}, this.head), this.body)), this.empty);
    this.keys = {
      j: () => this.move(1), k: () => this.move(-1),
      Enter: () => { if (this.focus) location.hash = `#/run/${this.focus}`; },
      o: () => { if (this.focus) location.hash = `#/run/${this.focus}`; },
      x: () => { if (this.focus) this.pick(this.focus, !this.picked.has(this.focus)); },
      c: () => this.open(),
    };
  }

  async refresh() {
    const found = await get("/api/runs");
    this.rows = found.runs;
    const known = new Set(this.rows.map((r) => r.key));
    for (const key of this.picked) if (!known.has(key)) this.picked.delete(key);
    document.title = `${this.rows.filter((r) => r.state === "running").length} running · Phalanx`;
    this.roots = found.roots;
    replace(this.problems, found.problems.map((problem) => h("p", { class: "problem" }, problem)));
    this.draw();
  }

  draw() {
    const counts = {};
    for (const row of this.rows) counts[row.state] = (counts[row.state] ?? 0) + 1;
    if (this.state && !counts[this.state]) this.state = null;
    replace(this.chips, Object.entries(counts).map(([state, count]) =>
      h("button", { class: "chip", "aria-pressed": String(this.state === state), onclick: () => { this.state = this.state === state ? null : state; this.draw(); } }, badge(state), ` ${count}`)));
    replace(this.head, COLUMNS.map(([title, value, kind]) => this.header(title, value, kind)));
    const shown = this.shown();
    const before = [...this.body.children].map((tr) => tr.dataset.key).join();
    const trs = shown.map((row) => this.row(row));
    if (before !== shown.map((r) => r.key).join() || trs.some((tr, n) => this.body.children[n] !== tr)) this.body.replaceChildren(...trs);
    const why = this.rows.length ? "No run fits the filter." : `There is no run in ${(this.roots ?? []).join(", ")} yet. It appears here when it begins.`;
    this.empty.textContent = shown.length ? "" : why;
    this.pickedChanged();
  }

  header(title, value, kind) {
    if (!value) return h("th", { class: kind }, title);
    const sorted = this.sort.column === title;
    return h("th", { class: kind, "aria-sort": sorted ? (this.sort.down ? "descending" : "ascending") : "none" },
      h("button", { class: "sort", onclick: () => { this.sort = { column: title, down: sorted ? !this.sort.down : true }; kept.set("sort", this.sort); this.draw(); } }, title, sorted ? (this.sort.down ? " ↓" : " ↑") : ""));
  }

  shown() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const value = COLUMNS.find(([title]) => title === this.sort.column)?.[1] ?? ((r) => r.since);
    const fits = (r) => {
      const text = [r.name, r.recipe, r.model, r.data, r.state, r.method, ...r.tags, ...r.hosts].join(" ").toLowerCase();
      return (!this.state || r.state === this.state) && words.every((word) => text.includes(word));
    };
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === y) return a.name < b.name ? -1 : 1;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : 1) * (this.sort.down ? -1 : 1);
    };
    return this.rows.filter(fits).sort(order);
  }

  /** The row's element: made again only if something that it shows has changed. */
  row(r) {
    const text = JSON.stringify(r) + ago(r.since);
    const had = this.cells.get(r.key);
    if (had?.text === text) return had.tr;
    const done = r.total_steps ? Math.min(1, r.step / r.total_steps) : 0;
    const box = h("input", { type: "checkbox", "aria-label": `select ${r.name}`, checked: this.picked.has(r.key), onchange: () => this.pick(r.key, box.checked) });
    const tr = h("tr", { "data-key": r.key, class: this.focus === r.key ? "focus" : "" },
      h("td", { class: "pick" }, box),
      h("td", { class: "state" }, badge(r.state, r.why), r.damaged && r.state !== "damaged" ? badge("damaged", r.remarks.join("\n")) : null),
      h("td", { class: "name" }, h("a", { href: `#/run/${r.key}`, title: r.path }, r.name), r.tags.map((tag) => h("span", { class: "tag" }, tag)), r.note ? h("span", { class: "quiet note", title: r.note }, "✎") : null),
      h("td", { class: "recipe", "data-label": "recipe" }, r.recipe ?? "–", h("small", {}, r.model ?? "")),
      h("td", { class: "num", "data-label": r.metric === "mAP" ? "best mAP" : "best" }, h("b", {}, percent(r.best))),
      h("td", { class: "num", "data-label": "last" }, percent(r.last)),
      h("td", { class: "curve" }, spark(r.spark)),
      h("td", { class: "num", "data-label": "steps/s" }, number(r.steps_per_s, 3), r.state === "running" && r.slow?.clear ? h("small", { class: "wrong", title: slowness(r.slow) }, `worker ${r.slow.rank} is slow`) : null),
      h("td", { class: "progress", "data-label": "progress" }, h("progress", { max: "1", value: done, "aria-label": "progress" }),
        h("small", {}, r.total_steps ? `${number(r.step)} of ${number(r.total_steps)}` : "–", r.left_s !== null ? ` · ${span(r.left_s)} left` : "")),
      h("td", { class: "hosts", "data-label": "hosts", title: r.hosts.join(", ") }, r.hosts.length > 1 ? `${r.hosts.length} hosts` : r.hosts[0] ?? "here", h("small", {}, r.workers > 1 ? `${r.workers} workers, ${r.method}` : "")),
      h("td", { class: "since", "data-label": "since", title: when(r.since) }, ago(r.since)));
    this.cells.set(r.key, { text, tr });
    return tr;
  }

  pick(key, on) {
    if (on) this.picked.add(key);
    else this.picked.delete(key);
    this.pickedChanged();
  }

  pickedChanged() {
    kept.set("picked", [...this.picked]);
    for (const tr of this.body.children) {
      tr.querySelector("input").checked = this.picked.has(tr.dataset.key);
      tr.classList.toggle("picked", this.picked.has(tr.dataset.key));
    }
    this.compare.disabled = this.picked.size < 2;
    this.compare.textContent = this.picked.size ? `Compare ${this.picked.size}` : "Compare";
    this.clear.hidden = !this.picked.size;
  }

  move(by) {
    const keys = [...this.body.children].map((tr) => tr.dataset.key);
    if (!keys.length) return;
    const at = keys.indexOf(this.focus);
    this.focus = keys[Math.max(0, Math.min(keys.length - 1, at + by))];
    for (const tr of this.body.children) {
      tr.classList.toggle("focus", tr.dataset.key === this.focus);
      if (tr.dataset.key === this.focus) tr.scrollIntoView({ block: "nearest" });
    }
  }

  open() {
    if (this.picked.size > 1) location.hash = `#/compare/${[...this.picked].join(",")}`;
  }

  fail(why) { this.empty.textContent = why; }
}
