// The configuration: every setting, where its value came from, and another run's value beside it.

import { get } from "./api.js";
import { choice, h, replace } from "./dom.js";

export class SettingsPart {
  constructor(run) {
    this.key = run.key;
    this.only = "set";
    this.search = h("input", { type: "search", placeholder: "Search settings", "aria-label": "search", oninput: () => this.draw() });
    this.other = h("select", { "aria-label": "compare with", onchange: () => this.load() }, h("option", { value: "" }, "compare with …"));
    this.table = h("div", { class: "scroll" });
    this.command = h("p", { class: "quiet" });
    this.element = h("div", {}, this.command,
      h("div", { class: "tools" }, choice("which", [["set", "not default"], ["all", "all"]], this.only, (only) => { this.only = only; this.draw(); }), this.search, this.other), this.table);
  }

  async refresh() {
    if (this.loaded) return;
    this.loaded = true;
    const { runs } = await get("/api/runs");
    this.other.append(...runs.filter((run) => run.key !== this.key).map((run) => h("option", { value: run.key }, run.name)));
    await this.load();
  }

  async load() {
    const query = this.other.value ? `?against=${this.other.value}` : "";
    this.found = await get(`/api/run/${this.key}/config${query}`);
    this.draw();
  }

  draw() {
    const { rows, problem, command } = this.found;
    const beside = Boolean(this.other.value);
    replace(this.command, command ? h("code", {}, command) : "");
    const word = this.search.value.toLowerCase();
    const shown = rows.filter((row) => (this.only === "all" || word || (beside ? row.differs : !row.is_default)) && `${row.key} ${JSON.stringify(row.value)} ${row.meaning}`.toLowerCase().includes(word));
    replace(this.table, problem ? h("p", { class: "problem" }, problem) : null,
      beside && !rows.some((row) => row.differs) ? h("p", { class: "quiet" }, "No setting differs.") : null,
      rows.length ? h("table", { class: "settings" }, h("thead", {}, h("tr", {}, ["setting", "value", ...(beside ? [this.other.selectedOptions[0].textContent] : []), "from"].map((t) => h("th", {}, t)))),
        h("tbody", {}, shown.map((row) => h("tr", { class: row.differs ? "differs" : "" },
          h("td", { title: row.meaning }, h("code", {}, row.key), h("small", {}, row.meaning)),
          h("td", {}, h("code", {}, plain(row.value)), row.decision ? h("small", {}, row.decision) : null),
          beside ? h("td", {}, h("code", {}, plain(row.other))) : null,
          h("td", { class: "quiet" }, row.origin))))) : null);
  }
}

const plain = (value) => (value === null || value === undefined ? "–" : typeof value === "string" ? value || "“”" : JSON.stringify(value));
