// Evaluations: the confusion matrix, each class, and the worst mistakes as pictures.

import { fileAddress, get } from "./api.js";
import { command, h, number, percent, quoted, replace } from "./dom.js";

export class ResultsPart {
  constructor(run) {
    this.key = run.key;
    this.element = h("div");
    this.pair = null;
    this.redraw = () => this.found && this.drawMatrix();
    addEventListener("themechange", this.redraw);
  }

  close() { removeEventListener("themechange", this.redraw); }

  async refresh(run) {
    const names = JSON.stringify([run.evaluations, run.evaluated]);
    if (this.names === names) return;
    this.names = names;
    if (!run.evaluations.length) {
      const [where, path] = run.host ? [` on ${run.host}`, run.path.slice(run.host.length + 1)] : ["", run.path];
      replace(this.element, h("p", { class: "quiet" }, `This run has not been evaluated class by class. Do it${where} with`), command(`phalanx eval ${quoted(path)}`), h("p", { class: "quiet" }, "and this page shows the confusion matrix, every class, and the worst mistakes as pictures."));
      return;
    }
    const chosen = run.evaluations.includes(this.found?.name) ? this.found.name : run.evaluations[0];
    const select = h("select", { "aria-label": "evaluation", onchange: () => this.load(select.value) }, run.evaluations.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    this.about = h("span", { class: "quiet" });
    this.place = h("div");
    this.jump = h("button", { class: "link", onclick: () => this.gallery.scrollIntoView({ behavior: "smooth" }) }, "Worst mistakes ↓");
    replace(this.element, h("div", { class: "tools" }, select, this.about, h("span", { class: "grow" }), this.jump), this.place);
    await this.load(chosen);
  }

  async load(name) {
    this.pair = null;
    this.found = await get(`/api/run/${this.key}/evaluation/${encodeURIComponent(name)}`);
    const f = this.found;
    this.about.textContent = `step ${number(f.step, 9)} · ${number(f.samples, 9)} images of ${f.data ?? "?"} · top-1 ${percent(f.top1)}${f.k > 1 ? ` · top-${f.k} ${percent(f.topk)}` : ""} · loss ${number(f.loss)}`;
    this.canvas = f.matrix ? h("canvas", { class: "matrix", role: "img", "aria-label": "confusion matrix", onmousemove: (event) => this.hover(event), onmouseleave: () => { this.tip.textContent = this.hint(); }, onclick: (event) => this.click(event) }) : null;
    this.tip = h("p", { class: "tip", "aria-live": "polite" }, this.hint());
    this.gallery = h("div");
    replace(this.place, h("div", { class: "two" },
      h("div", {}, h("h2", {}, "Confusion matrix"), f.matrix ? [this.tip, this.canvas] : [h("p", { class: "quiet" }, "It has too many classes, or several labels a sample; the most frequent confusions:"), this.confusions()]),
      h("div", {}, h("h2", {}, "Classes, the worst first"), this.classes())), this.gallery);
    this.drawMatrix();
    this.drawGallery();
  }

  hint() { return "Rows are true classes, columns answers. Point at a cell for its count, click for its images."; }

  confusions() {
    return h("div", { class: "scroll tall" }, h("table", {}, h("tbody", {}, this.found.confusions.slice(0, 100).map((one) => h("tr", { onclick: () => this.choose(one.class, one.answer) }, h("td", {}, one.class, " → ", one.answer), h("td", { class: "num" }, String(one.times)))))));
  }

  classes() {
    const score = (one) => one.top1 ?? one.average_precision ?? null;
    const rows = [...this.found.classes].sort((a, b) => (score(a) ?? 2) - (score(b) ?? 2));
    return h("div", { class: "scroll tall" }, h("table", { class: "classes" }, h("thead", {}, h("tr", {}, ["class", "", "images", "mostly taken for"].map((t) => h("th", {}, t)))),
      h("tbody", {}, rows.map((one) => h("tr", {},
        h("td", {}, one.name),
        h("td", { class: "barcell" }, h("meter", { min: "0", max: "1", value: String(score(one) ?? 0), "aria-label": "accuracy" }), h("small", {}, percent(score(one), 1))),
        h("td", { class: "num" }, String(one.samples ?? "–")),
        h("td", {}, one.times ? h("button", { class: "link", onclick: () => this.choose(one.name, one.confused_with) }, `${one.confused_with} (${one.times})`) : "–"))))));
  }

  drawMatrix() {
    if (!this.canvas) return;
    const { matrix, classes } = this.found;
    const names = classes.map((one) => one.name);
    const n = names.length, style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim(), good = style.getPropertyValue("--c1").trim(), bad = style.getPropertyValue("--c2").trim(), paper = style.getPropertyValue("--paper").trim();
    const labels = n <= 40, width = Math.min(n <= 20 ? 460 : 560, this.canvas.parentElement.clientWidth || 360);
    const context = this.canvas.getContext("2d");
    context.font = "11px system-ui, sans-serif";
    const margin = labels ? Math.min(120, 8 + Math.max(...names.map((name) => context.measureText(name).width))) : 4;
    const side = (width - margin) / n;
    const flat = side >= 30 && names.every((name) => context.measureText(name).width <= side); // else names of answers stand upright
    const top = labels && flat ? 20 : margin, height = top + side * n, scale = devicePixelRatio || 1;
    this.shape = { margin, top, side, n };
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    context.scale(scale, scale);
    context.fillStyle = paper;
    context.fillRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    matrix.forEach((row, label) => {
      const total = row.reduce((sum, count) => sum + count, 0) || 1;
      row.forEach((count, answer) => {
        const share = count / total;
        const x = margin + answer * side, y = top + label * side, gap = side > 8 ? 1 : 0;
        context.globalAlpha = count ? 0.12 + 0.88 * Math.sqrt(share) : 0.04;
        context.fillStyle = count ? (label === answer ? good : bad) : ink;
        context.fillRect(x, y, side - gap, side - gap);
        context.globalAlpha = 1;
        if (count && side > 22) {
          context.fillStyle = share > 0.4 ? "#fff" : ink;
          context.textAlign = "center";
          context.fillText(String(count), x + side / 2, y + side / 2);
        }
        if (this.pair && this.pair[0] === names[label] && this.pair[1] === names[answer]) { context.strokeStyle = ink; context.lineWidth = 2; context.strokeRect(x, y, side - 1, side - 1); }
      });
    });
    if (labels) names.forEach((name, number) => {
      context.fillStyle = ink;
      context.textAlign = "right";
      context.fillText(name, margin - 5, top + (number + 0.5) * side, margin - 6);
      context.save();
      context.translate(margin + (number + 0.5) * side, top - (flat ? 10 : 5));
      if (!flat) context.rotate(-Math.PI / 2);
      context.textAlign = flat ? "center" : "left";
      context.fillText(name, 0, 0, flat ? side : margin - 6);
      context.restore();
    });
  }

  cell(event) {
    const { margin, top, side, n } = this.shape;
    const answer = Math.floor((event.offsetX - margin) / side), label = Math.floor((event.offsetY - top) / side);
    return answer >= 0 && label >= 0 && answer < n && label < n ? [label, answer] : null;
  }

  hover(event) {
    const found = this.cell(event);
    if (!found) { this.tip.textContent = this.hint(); return; }
    const [label, answer] = found, names = this.found.classes, row = this.found.matrix[label];
    const total = row.reduce((sum, count) => sum + count, 0);
    this.tip.textContent = `${names[label].name} ${label === answer ? "recognised" : `taken for ${names[answer].name}`}: ${row[answer]} of ${total} (${percent(total ? row[answer] / total : 0, 1)})`;
  }

  click(event) {
    const found = this.cell(event);
    if (found && found[0] !== found[1]) this.choose(this.found.classes[found[0]].name, this.found.classes[found[1]].name);
    else this.choose(null);
  }

  choose(label, answer) {
    this.pair = label === null ? null : [label, answer];
    this.drawMatrix();
    this.drawGallery();
    this.gallery.scrollIntoView({ behavior: "smooth", block: "nearest" });
  }

  drawGallery() {
    const all = this.found.mistakes;
    const shown = this.pair ? all.filter((one) => one.class === this.pair[0] && one.answer === this.pair[1]) : all;
    const title = this.pair ? `${this.pair[0]} taken for ${this.pair[1]}` : "Worst mistakes";
    replace(this.gallery, h("h2", {}, title, this.pair ? h("button", { class: "small", onclick: () => this.choose(null) }, "all") : null),
      h("p", { class: "quiet" }, all.length ? "Confident and wrong, the most confident first. Such an image often has a wrong label." : "No pictures: evaluate the run again with this version's phalanx eval."),
      all.length && !shown.length ? h("p", { class: "quiet" }, "None of these is among the pictures that were kept.") : null,
      h("div", { class: "gallery" }, shown.map((one) => h("figure", {},
        one.image ? h("img", { loading: "lazy", alt: "", src: fileAddress(this.key, `${this.found.name}/${one.image}`) }) : h("div", { class: "noimage" }, "does not decode"),
        h("figcaption", { title: one.name }, h("span", {}, "is ", h("b", {}, one.class)), h("span", { class: "wrong" }, "answer ", h("b", {}, one.answer), ` ${percent(one.probability, 0)}`), h("small", {}, one.name))))));
  }
}
