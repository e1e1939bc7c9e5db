// The profile of a run: what to change, a flame graph of a step (parts, layers, operators), and the kinds of work.

import { fileAddress, get } from "./api.js";
import { choice, h, number, percent, replace } from "./dom.js";

const CLASSES = {
  convolution: "k-conv", "matrix product": "k-product", normalization: "k-norm", activation: "k-point", pooling: "k-point", "element-wise": "k-point",
  "copies and casts": "k-copy", exchange: "k-wait", "data wait": "k-wait", optimizer: "k-update", loss: "k-update", "Python and dispatch": "k-scope",
};
const ROW = 21; // pixels of a level
const NARROWEST = 0.0015; // of the width: what is narrower cannot be read or pressed

const classOf = (kind) => CLASSES[kind] ?? "k-other";

/** The stylesheet of this part, once. */
function style() {
  if (document.querySelector("link[href='/assets/flame.css']")) return;
  document.head.append(h("link", { rel: "stylesheet", href: "/assets/flame.css" }));
}

export class FlamePart {
  constructor(run) {
    style();
    this.key = run.key;
    this.graph = h("div", { class: "flame", role: "group", "aria-label": "flame graph of a step", onkeydown: (event) => this.pressed(event) });
    this.detail = h("p", { class: "flame-detail quiet", role: "status" });
    this.element = h("div", { class: "profile" }, h("p", { class: "quiet pad" }, "Reading the profile …"));
    this.keys = { r: () => this.zoom(this.worker.tree) };
  }

  async refresh() {
    if (this.profile) return;
    this.profile = await get(`/api/run/${this.key}/profile`);
    this.show(this.profile.slowest ?? this.profile.workers[0].rank);
  }

  show(rank) {
    const p = this.profile;
    this.worker = p.workers.find((one) => one.rank === rank) ?? p.workers[0];
    const w = this.worker;
    replace(this.element,
      h("p", { class: "facts-line" }, `${p.model}, steps ${p.first_step} to ${p.first_step + p.steps - 1} of ${number(p.samples_per_step, 9)} samples: ${number(w.ms)} ms a step, ${number(p.images_per_s)} images/s. `, h("a", { href: fileAddress(this.key, "trace.json"), download: "" }, "trace.json"), " opens in Perfetto."),
      p.advice.length ? [h("h2", {}, "The largest things to change"), h("ol", {}, p.advice.map((one) => h("li", {}, one.reason, ": ", h("b", {}, one.change))))] : h("p", { class: "quiet" }, "Nothing large to change was found in these numbers."),
      h("h2", {}, "Where the time of a step goes"),
      p.workers.length > 1 ? h("div", { class: "bar-row" }, choice("worker", p.workers.map((one) => [one.rank, `trainer-${one.rank}${one.rank === p.slowest ? " (slowest)" : ""}`]), w.rank, (chosen) => this.show(chosen)), w.waited_ms === null ? null : h("span", { class: "quiet" }, `waits ${number(w.waited_ms, 3)} ms of a step for slower workers`)) : null,
      this.graph, this.detail, this.kinds(w));
    this.zoom(w.tree);
  }

  kinds(w) {
    return [h("h2", {}, "Kinds of work"), h("div", { class: "scroll" }, h("table", { class: "kinds" }, h("thead", {}, h("tr", {}, ["kind", "ms", "share", "calls"].map((title) => h("th", {}, title)))),
      h("tbody", {}, w.kinds.map((one) => h("tr", {}, h("td", {}, h("i", { class: classOf(one.kind), "aria-hidden": "true" }), one.kind), h("td", { class: "num" }, number(one.ms, 3)), h("td", { class: "num" }, percent(one.ms / w.ms, 1)), h("td", { class: "num" }, one.calls ? number(one.calls) : ""))))))];
  }

  /** Draw a node over the whole width, with those around it above and those inside below. */
  zoom(node) {
    const trail = trailTo(this.worker.tree, node);
    const drawn = [];
    trail.forEach((each, depth) => drawn.push(this.box(each, depth, 0, 1, each !== node)));
    let deepest = trail.length - 1;
    const below = (parent, depth, left, width) => {
      let at = left;
      const scale = width / Math.max(parent.ms, parent.children.reduce((sum, child) => sum + child.ms, 0), 1e-9);
      for (const child of parent.children) {
        const wide = child.ms * scale;
        if (wide >= NARROWEST) {
          drawn.push(this.box(child, depth, at, wide, false));
          deepest = Math.max(deepest, depth);
          below(child, depth + 1, at, wide);
        }
        at += wide;
      }
    };
    below(node, trail.length, 0, 1);
    this.shown = node;
    this.graph.style.setProperty("height", `${(deepest + 1) * ROW + 2}px`);
    replace(this.graph, drawn);
    this.tell(node);
  }

  box(node, depth, left, width, faded) {
    const words = this.words(node);
    const box = h("button", {
      type: "button", class: `${classOf(node.kind)}${faded ? " faded" : ""}`, title: words, "aria-label": words, tabindex: depth === 0 ? "0" : "-1",
      style: { left: `${100 * left}%`, width: `${100 * width}%`, top: `${depth * ROW + 1}px` },
      onclick: () => { this.zoom(node); this.focus(node); }, onmouseenter: () => this.tell(node), onfocus: () => this.tell(node),
    }, node.name.replace("aten::", ""));
    box.node = node;
    box.depth = depth;
    return box;
  }

  words(node) {
    const calls = node.calls ? `, ${number(node.calls, 3)} ${node.calls === 1 ? "call" : "calls"}` : "";
    return `${node.name}: ${number(node.ms, 3)} ms, ${percent(node.ms / this.worker.ms, 1)} of a step${calls}, ${node.kind}`;
  }

  tell(node) {
    const path = trailTo(this.worker.tree, node).slice(1, -1).map((one) => one.name).join(" › ");
    replace(this.detail, h("b", {}, this.words(node)), path ? [h("br"), path] : null);
  }

  focus(node) { [...this.graph.children].find((box) => box.node === node)?.focus(); }

  /** Arrows go to the call around, inside, before and after; Enter opens, Escape closes. */
  pressed(event) {
    const box = event.target;
    if (!box.node) return;
    const boxes = [...this.graph.children];
    const trail = trailTo(this.worker.tree, box.node);
    const row = boxes.filter((one) => one.depth === box.depth);
    const to = {
      ArrowUp: () => boxes.find((one) => one.node === trail.at(-2)),
      ArrowDown: () => boxes.find((one) => box.node.children.includes(one.node)),
      ArrowLeft: () => row[row.indexOf(box) - 1],
      ArrowRight: () => row[row.indexOf(box) + 1],
    }[event.key];
    if (to) {
      event.preventDefault();
      to()?.focus();
    } else if (event.key === "Escape" && this.shown !== this.worker.tree) {
      const node = trailTo(this.worker.tree, this.shown).at(-2);
      this.zoom(node);
      this.focus(node);
      event.stopPropagation();
    }
  }
}

/** From the whole step to a node. */
function trailTo(root, node) {
  if (root === node) return [root];
  for (const child of root.children) {
    const found = trailTo(child, node);
    if (found.length) return [root, ...found];
  }
  return [];
}
