// Several runs: their curves in one picture, and what is different between them.

import { get } from "./api.js";
import { Charts, palette } from "./charts.js";
import { badge, h, number, percent, replace, span } from "./dom.js";

export class CompareView {
  constructor(keys) {
    this.ids = keys;
    this.element = h("section", {}, h("p", { class: "quiet pad" }, "Reading the runs …"));
    this.keys = { r: () => this.charts?.unzoom() };
  }

  crumbs() { return [h("span", {}, "compare")]; }

  async refresh() {
    if (!this.charts) await this.begin();
    await this.charts.refresh();
    const { runs } = await get("/api/runs");
    this.rows(this.ids.map((key) => runs.find((run) => run.key === key)).filter(Boolean));
  }

  async begin() {
    const { runs } = await get("/api/runs");
    const shown = this.ids.map((key) => runs.find((run) => run.key === key)).filter(Boolean);
    this.ids = shown.map((run) => run.key);
    this.table = h("tbody");
    this.differences = h("div");
    this.charts = new Charts(shown.map(({ key, name }) => ({ key, name })));
    replace(this.element,
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["run", "state", "best", "last", "steps", "steps/s", "images/s", "time"].map((t) => h("th", {}, t)))), this.table)),
      this.charts.element, h("h2", {}, "Settings that differ"), this.differences);
    document.title = `${shown.length} runs · Phalanx`;
    await this.differ(shown);
  }

  rows(runs) {
    const colours = palette();
    replace(this.table, runs.map((run, n) => h("tr", {},
      h("td", {}, h("i", { class: "swatch", style: { background: colours[n % colours.length] } }), h("a", { href: `#/run/${run.key}` }, run.name)),
      h("td", {}, badge(run.state, run.why)), h("td", {}, h("b", {}, percent(run.best))), h("td", {}, percent(run.last)),
      h("td", {}, number(run.step)), h("td", {}, number(run.steps_per_s, 3)), h("td", {}, number(run.images_per_s, 4)), h("td", {}, span(run.seconds)))));
  }

  async differ(runs) {
    const found = await Promise.all(runs.map((run) => get(`/api/run/${run.key}/config`)));
    const values = found.map((one) => new Map(one.rows.map((row) => [row.key, JSON.stringify(row.value)])));
    const names = [...new Set(found.flatMap((one) => one.rows.map((row) => row.key)))];
    const differing = names.filter((name) => new Set(values.map((one) => one.get(name))).size > 1);
    replace(this.differences, differing.length
      ? h("div", { class: "scroll" }, h("table", { class: "settings" }, h("thead", {}, h("tr", {}, h("th", {}, "setting"), runs.map((run) => h("th", {}, run.name)))),
          h("tbody", {}, differing.map((name) => h("tr", {}, h("td", {}, h("code", {}, name)), values.map((one) => h("td", {}, h("code", {}, one.get(name) ?? "–"))))))))
      : h("p", { class: "quiet" }, "None: they have the same settings."));
  }

  close() { this.charts?.close(); }
  fail(why) { replace(this.element, h("p", { class: "problem" }, why)); }
}
