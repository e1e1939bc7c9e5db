// Learning curves of one run or several. The server sends as many points as the screen has; zooming asks for more.

import uPlot from "./uplot/uPlot.esm.js";
import { get } from "./api.js";
import { choice, h, kept, number, replace, span } from "./dom.js";

// title, what belongs to it, unit
const PANELS = [
  ["accuracy", /^(train|val)\/(top\d+)$/, "%"],
  ["loss", /^(train|val)\/loss$/, ""],
  ["learning rate", /^train\/lr$/, ""],
  ["gradient norm", /^train\/grad_norm$/, ""],
  ["speed", /^speed\/images_per_s$/, "images/s"],
  ["time of a step", /^time\//, "ms"],
  ["traffic of a step", /^bytes\//, "bytes"],
  ["staleness", /^async\/staleness$/, "updates"],
];
const LABELS = { "speed/images_per_s": "images/s", "train/lr": "rate", "train/grad_norm": "norm", "async/staleness": "staleness" };
const DASHES = { "train/top1": [], "val/top1": [] };
const HEIGHT = 250;

export function palette() {
  const style = getComputedStyle(document.documentElement);
  return [1, 2, 3, 4, 5, 6, 7].map((n) => style.getPropertyValue(`--c${n}`).trim());
}

export class Charts {
  /** runs: [{key, name}]. */
  constructor(runs) {
    this.runs = runs;
    this.axis = kept.get("axis", "step");
    this.smooth = kept.get("smooth", 0);
    this.log = new Set(kept.get("log", []));
    this.zoom = null;
    this.panels = new Map();
    this.answers = [];
    this.states = [];
    this.reset = h("button", { hidden: true, class: "reset", title: "r, or a double click", onclick: () => this.unzoom() }, "Whole range");
    const shown = h("output", {}, String(this.smooth));
    const slider = h("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: String(this.smooth), "aria-label": "smoothing", oninput: () => { this.smooth = Number(slider.value); shown.textContent = slider.value; kept.set("smooth", this.smooth); this.soon(); } });
    this.grid = h("div", { class: "charts" });
    this.quiet = h("p", { class: "quiet pad" }, "Reading the events …");
    this.element = h("div", {},
      h("div", { class: "tools" },
        h("label", {}, "by ", choice("axis", [["step", "step"], ["epoch", "epoch"], ["time", "time"]], this.axis, (axis) => { this.axis = axis; kept.set("axis", axis); this.unzoom(); })),
        h("label", {}, "smoothing ", slider, " ", shown),
        h("span", { class: "grow" }), h("span", { class: "quiet hint" }, "drag to zoom"), this.reset),
      this.quiet, this.grid);
    this.rebuild = () => { this.panels.forEach((panel) => panel.destroy()); this.panels.clear(); this.grid.replaceChildren(); this.draw(); };
    addEventListener("themechange", this.rebuild);
    this.resizing = new ResizeObserver(() => this.panels.forEach((panel) => panel.fit()));
    this.resizing.observe(this.grid);
  }

  close() {
    removeEventListener("themechange", this.rebuild);
    this.resizing.disconnect();
    this.panels.forEach((panel) => panel.destroy());
    clearTimeout(this.later);
  }

  soon() {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.refresh(), 120);
  }

  async refresh() {
    const query = new URLSearchParams({ axis: this.axis, smooth: this.smooth, points: Math.min(1200, Math.max(300, innerWidth)) });
    if (this.zoom) { query.set("from", this.zoom[0]); query.set("to", this.zoom[1]); }
    const asked = String(query);
    if (this.asked !== asked) this.states = []; // of the answers that are held for this question
    this.asked = asked;
    const have = (number) => (this.states[number] ? `&have=${encodeURIComponent(this.states[number])}` : "");
    const answers = await Promise.all(this.runs.map((run, number) => get(`/api/run/${run.key}/curves?${query}${have(number)}`)));
    if (this.asked !== asked || !answers.some((answer) => answer.series)) return; // a newer question is under way, or nothing is new
    this.answers = answers.map((answer, number) => (answer.series ? answer : this.answers[number]));
    this.states = answers.map((answer) => answer.state);
    this.draw();
  }

  draw() {
    const names = [...new Set(this.answers.flatMap((answer) => Object.keys(answer.series)))];
    const used = new Set();
    const wanted = [];
    for (const [title, pattern, unit] of PANELS) {
      if (this.runs.length > 1 && ["time of a step", "traffic of a step"].includes(title)) { names.filter((name) => pattern.test(name)).forEach((name) => used.add(name)); continue; }
      const own = names.filter((name) => pattern.test(name));
      own.forEach((name) => used.add(name));
      if (own.length) wanted.push([title, own, unit]);
    }
    for (const name of names) if (!used.has(name)) wanted.push([name.replace(/^val\//, ""), [name], name === "val/mAP" ? "%" : ""]);
    this.quiet.hidden = wanted.length > 0;
    this.quiet.textContent = wanted.length ? "" : this.answers.length ? "No step has been reported yet." : "Reading the events …";
    for (const [title, panel] of this.panels) if (!wanted.some(([other]) => other === title)) { panel.destroy(); this.panels.delete(title); }
    for (const [title, own, unit] of wanted) {
      const series = this.series(own);
      const same = series.map((one) => one.label).join("\n") + this.axis;
      let panel = this.panels.get(title);
      if (panel && panel.same !== same) { panel.destroy(); this.panels.delete(title); panel = null; }
      if (!panel) {
        panel = new Panel(this, title, unit, series, same);
        this.panels.set(title, panel);
      }
      panel.set(series);
    }
    const order = wanted.map(([title]) => this.panels.get(title).element);
    if (order.some((element, n) => this.grid.children[n] !== element)) this.grid.replaceChildren(...order);
  }

  /** A line for each run and curve: runs differ in colour; with one run, curves do. */
  series(own) {
    const colours = palette();
    const lines = [];
    this.runs.forEach((run, number) => {
      own.forEach((name, curve) => {
        const found = this.answers[number]?.series[name];
        if (!found) return;
        const part = LABELS[name] ?? name.replace(/^(time|bytes)\//, "").replace("/", " ");
        const isTraining = name.startsWith("train/") && own.some((other) => other.startsWith("val/"));
        const several = this.runs.length > 1;
        if (several && /^val\/top[2-9]/.test(name)) return;
        lines.push({
          label: several ? (own.length > 1 ? `${run.name} ${part}` : run.name) : part,
          colour: colours[(several ? number : colourOf(name, curve)) % colours.length],
          dash: several && number >= colours.length ? [6, 4] : DASHES[name] ?? [],
          pale: isTraining, x: found.x, y: found.y,
        });
      });
    });
    return lines;
  }

  setZoom(low, high) {
    this.zoom = [low, high];
    this.reset.hidden = false;
    this.element.dataset.zoom = `${low}:${high}`;
    return this.refresh();
  }

  unzoom() {
    this.zoom = null;
    this.reset.hidden = true;
    delete this.element.dataset.zoom;
    return this.refresh();
  }
}

const colourOf = (name, curve) => (name.startsWith("train/") ? 0 : name === "val/top1" || name === "val/loss" ? 1 : name.startsWith("val/") ? 2 : curve);

class Panel {
  constructor(charts, title, unit, series, same) {
    this.charts = charts;
    this.title = title;
    this.unit = unit;
    this.same = same;
    this.host = h("div", { class: "plot" });
    const isLog = charts.log.has(title);
    this.element = h("figure", { class: "panel", "data-panel": title },
      h("figcaption", {}, h("b", {}, title), unit ? h("span", { class: "quiet" }, ` ${unit}`) : null, h("span", { class: "grow" }),
        h("button", { class: "small", "aria-pressed": String(isLog), title: "logarithmic axis", onclick: () => { charts.log[isLog ? "delete" : "add"](title); kept.set("log", [...charts.log]); this.destroy(); charts.panels.delete(title); charts.draw(); } }, "log")),
      this.host);
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim(), line = style.getPropertyValue("--line").trim();
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
    const shownX = (value) => (charts.axis === "time" ? span(value) : number(value, 6));
    this.plot = new uPlot({
      width: 400, height: HEIGHT,
      scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 } },
      cursor: { sync: { key: "phalanx" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      legend: { live: true },
      axes: [
        { ...axis, space: 70, values: (u, ticks) => ticks.map(shownX) },
        { ...axis, size: 58, values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick, 4))) },
      ],
      series: [
        { label: charts.axis, value: (u, value) => (value === null || value === undefined ? "–" : shownX(value)) },
        ...series.map((one) => ({
          label: one.label, stroke: one.pale ? `${one.colour}99` : one.colour, width: one.pale ? 1.2 : 2, dash: one.dash, spanGaps: true,
          points: { show: one.x.length < 40, size: 5, fill: one.colour },
          value: (u, value, at, index) => (value === null || value === undefined ? this.near(at, index) : number(value, 5)),
        })),
      ],
      hooks: {
        setSelect: [(u) => {
          if (u.select.width > 4) charts.setZoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
          if (u.select.width) u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    }, [[], ...series.map(() => [])], this.host);
    this.plot.over.addEventListener("dblclick", () => charts.unzoom());
    requestAnimationFrame(() => this.fit());
  }

  /** The value beside the cursor of a curve that has no point just there: the one before. */
  near(series, index) {
    if (index === null || index === undefined || !this.plot) return "–";
    const values = this.plot.data[series];
    for (let n = index; n >= 0; n -= 1) if (values[n] !== null && values[n] !== undefined) return number(values[n], 5);
    return "–";
  }

  set(series) {
    const positive = this.charts.log.has(this.title);
    const tables = series.map((one) => [one.x, positive ? one.y.map((value) => (value > 0 ? value : null)) : one.y]);
    const text = JSON.stringify(tables) + this.charts.zoom;
    if (this.text === text) return;
    this.text = text;
    // Equal places of one curve (a resumed step) would not be in order for uPlot: the last one counts.
    const data = uPlot.join(tables.map(([x, y]) => { const last = new Map(x.map((place, n) => [place, y[n]])); const places = [...last.keys()].sort((a, b) => a - b); return [places, places.map((place) => last.get(place))]; }));
    this.plot.batch(() => {
      this.plot.setData(data, !this.charts.zoom);
      if (this.charts.zoom) this.plot.setScale("x", { min: this.charts.zoom[0], max: this.charts.zoom[1] });
    });
    this.element.dataset.points = String(data[0].length);
  }

  fit() {
    const width = this.host.clientWidth;
    if (width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  destroy() {
    this.plot.destroy();
    this.element.remove();
  }
}
