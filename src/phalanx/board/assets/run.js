// One run: its head, and its parts as tabs.

import { get, post, put } from "./api.js";
import { Charts } from "./charts.js";
import { ago, badge, bytes, h, number, percent, quoted, replace, span, when } from "./dom.js";
import { fileAddress } from "./api.js";
import { FlamePart } from "./flame.js";
import { JobPart, slowness } from "./job.js";
import { LogPart } from "./log.js";
import { ResultsPart } from "./results.js";
import { SamplesPart } from "./samples.js";
import { SettingsPart } from "./settings.js";

class CurvesPart {
  constructor(run) {
    this.charts = new Charts([{ key: run.key, name: run.name }]);
    this.element = this.charts.element;
    this.keys = { r: () => this.charts.unzoom() };
  }
  refresh() { return this.charts.refresh(); }
  close() { this.charts.close(); }
}

class CheckpointsPart {
  constructor() { this.element = h("div"); }
  refresh(run) {
    const text = JSON.stringify(run.checkpoints);
    if (this.text === text) return;
    this.text = text;
    replace(this.element, run.checkpoints.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["step", "written", "size", "files"].map((t) => h("th", {}, t)))),
      h("tbody", {}, run.checkpoints.map((one) => h("tr", {}, h("td", {}, number(one.step, 9), one.best ? h("span", { class: "tag" }, "best") : null), h("td", { title: when(one.t) }, ago(one.t)), h("td", {}, bytes(one.bytes)),
        run.host ? h("td", {}, h("code", {}, `scp -r ${quoted(`${run.path}/checkpoints/step-${one.step}`)} .`)) :
        h("td", {}, one.files.map((file) => [h("a", { href: fileAddress(run.key, file.name), download: "" }, file.name.split("/").pop()), " "]))))))) : h("p", { class: "quiet" }, "There is no checkpoint in this folder."));
  }
}

const PARTS = [
  ["curves", "Curves", CurvesPart], ["results", "Results", ResultsPart], ["job", "Job", JobPart], ["samples", "Samples", SamplesPart],
  ["settings", "Settings", SettingsPart], ["log", "Log", LogPart], ["checkpoints", "Checkpoints", CheckpointsPart],
  ["profile", "Profile", FlamePart],
];
const partsOf = (run) => PARTS.filter(([name]) => name !== "profile" || run?.has_profile);

export class RunView {
  constructor(key, part) {
    this.key = key;
    this.name = part || "curves";
    this.head = h("div", { class: "run-head" });
    this.notes = h("div", { class: "notes" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "parts of the run" });
    this.body = h("div", { class: "part" }, h("p", { class: "quiet pad" }, "Reading the run …"));
    this.element = h("section", {}, this.head, this.notes, this.tabs, this.body);
  }

  get keys() {
    const jump = Object.fromEntries(partsOf(this.run).map(([name], n) => [String(n + 1), () => { location.hash = `#/run/${this.key}/${name}`; }]));
    return { ...jump, ...this.part?.keys };
  }

  crumbs() { this.crumb = h("span", {}, "…"); return [this.crumb]; }

  async refresh() {
    this.run = await get(`/api/run/${this.key}`);
    this.drawHead();
    if (!this.part) this.begin();
    await this.part.refresh(this.run);
  }

  show(name) {
    this.name = name || "curves";
    this.part?.close?.();
    this.part = null;
    if (this.run) { this.drawHead(); this.begin(); return this.part.refresh(this.run); }
    return null;
  }

  begin() {
    const [name, , Part] = partsOf(this.run).find(([name]) => name === this.name) ?? PARTS[0];
    this.part = new Part(this.run);
    replace(this.tabs, partsOf(this.run).map(([other, title]) => h("a", { href: `#/run/${this.key}/${other}`, "aria-current": other === name ? "page" : null }, title)));
    replace(this.body, this.part.element);
  }

  drawHead() {
    const r = this.run;
    if (this.crumb) this.crumb.textContent = r.name;
    document.title = `${r.name} · Phalanx`;
    const done = r.total_steps ? Math.min(1, r.step / r.total_steps) : 0;
    const figure = (title, value, more = "") => h("div", { class: "figure" }, h("small", {}, title), h("b", {}, value), h("small", {}, more));
    replace(this.head,
      h("div", { class: "title" }, h("h1", {}, r.name), badge(r.state, r.why), r.damaged && r.state !== "damaged" ? badge("damaged") : null,
        r.control && ["running", "waiting"].includes(r.state) ? h("button", { class: "danger stop", onclick: () => this.stop() }, "Stop") : null),
      r.why ? h("p", { class: r.state === "failed" || r.state === "killed" ? "problem" : "quiet" }, r.why) : null,
      r.state === "running" && r.slow?.clear && this.name !== "job" ? h("p", { class: "slowest" }, h("b", {}, `Worker ${r.slow.rank} is slow: `), slowness(r.slow), " ", h("a", { href: `#/run/${this.key}/job` }, "Look at the job")) : null,
      r.remarks.map((remark) => h("p", { class: "problem" }, remark)),
      this.said ? h("p", { class: "said" }, this.said) : null,
      h("div", { class: "figures" },
        figure(r.metric === "mAP" ? "best mAP" : "best top-1", percent(r.best), r.best_step ? `step ${number(r.best_step, 9)}` : ""),
        figure("last", percent(r.last)),
        figure("step", number(r.step, 9), r.total_steps ? `of ${number(r.total_steps, 9)}` : ""),
        figure("images/s", number(r.images_per_s, 4), `${number(r.steps_per_s, 3)} steps/s`),
        figure(r.left_s !== null ? "left" : "trained", span(r.left_s ?? r.seconds), r.since ? `began ${ago(r.since)}` : ""),
        figure("model", r.model ?? "–", r.start.parameters ? `${number(r.start.parameters / 1e6, 3)} M parameters` : ""),
        figure("data", r.start.train_samples ? number(r.start.train_samples, 9) : "–", r.start.classes ? `images, ${r.start.classes} classes` : "")),
      h("progress", { max: "1", value: done, "aria-label": "progress", class: "wide" }));
    if (!this.notes.contains(document.activeElement)) this.drawNotes();
  }

  drawNotes() {
    const r = this.run;
    const text = JSON.stringify([r.tags, r.note]);
    if (this.notesText === text) return;
    this.notesText = text;
    const save = async (tags, note) => {
      try { await put(`/api/run/${this.key}/notes`, { tags, note }); } catch (error) { this.said = error.message; }
      document.activeElement?.blur();
      await this.refresh();
    };
    const tag = h("input", { placeholder: "add a tag", "aria-label": "add a tag", class: "tag-field", maxlength: "60", onkeydown: (event) => { if (event.key === "Enter" && tag.value.trim()) save([...r.tags, tag.value.trim()], r.note); } });
    const note = h("textarea", { placeholder: "Notes, kept in the run's folder", "aria-label": "notes", rows: r.note ? String(Math.min(8, r.note.split("\n").length + 1)) : "1", value: r.note, onchange: () => save(r.tags, note.value) });
    replace(this.notes, h("div", { class: "tags" }, r.tags.map((one) => h("button", { class: "tag", title: "remove", onclick: () => save(r.tags.filter((other) => other !== one), r.note) }, one, " ×")), tag), note);
  }

  async stop() {
    if (!confirm("Stop the job? Workers save a checkpoint first.")) return;
    try { this.said = (await post(`/api/run/${this.key}/stop`)).said; } catch (error) { this.said = error.message; }
    await this.refresh();
  }

  close() { this.part?.close?.(); }
  fail(why) { replace(this.body, h("p", { class: "problem" }, why)); }
}
