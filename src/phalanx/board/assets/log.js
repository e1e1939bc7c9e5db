// Logs: the last lines of each, with search.

import { fileAddress, get } from "./api.js";
import { bytes, h, replace } from "./dom.js";

export class LogPart {
  constructor(run) {
    this.key = run.key;
    this.search = h("input", { type: "search", placeholder: "Search the whole log", "aria-label": "search", oninput: () => { clearTimeout(this.later); this.later = setTimeout(() => this.load(), 200); } });
    this.files = h("select", { "aria-label": "log", onchange: () => this.load(true) });
    this.about = h("span", { class: "quiet" });
    this.link = h("a", { class: "quiet", download: "" }, "download");
    this.lines = h("pre", { class: "log", tabindex: "0" });
    this.element = h("div", {}, h("div", { class: "tools" }, this.files, this.search, this.about, h("span", { class: "grow" }), this.link), this.lines);
  }

  async refresh(run) {
    const names = run.logs.join();
    if (this.names !== names) {
      this.names = names;
      const chosen = this.files.value;
      replace(this.files, run.logs.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    }
    if (!run.logs.length) { this.lines.textContent = "There is no log in this folder."; return; }
    await this.load();
  }

  async load(whole = false) {
    const file = this.files.value;
    const found = await get(`/api/run/${this.key}/log?${new URLSearchParams({ file, search: this.search.value })}`);
    this.link.href = fileAddress(this.key, file);
    this.about.textContent = `${found.lines.length} lines${found.cut ? ", the latest" : ""} · ${bytes(found.size)}`;
    const text = `${file}\n${this.search.value}\n${found.lines.join("\n")}`;
    if (this.text === text) return;
    const atEnd = whole || !this.text || this.lines.scrollTop + this.lines.clientHeight > this.lines.scrollHeight - 40;
    this.text = text;
    const word = this.search.value.toLowerCase();
    this.lines.replaceChildren(...found.lines.flatMap((line) => [...marked(line, word), "\n"]));
    if (atEnd) this.lines.scrollTop = this.lines.scrollHeight;
  }

  close() { clearTimeout(this.later); }
}

/** A line with the word that was searched for in <mark>. */
function marked(line, word) {
  if (!word) return [/\b(error|failed|lost|killed)\b/i.test(line) ? h("span", { class: "bad" }, line) : line];
  const parts = [];
  let at = 0;
  for (let found = line.toLowerCase().indexOf(word); found >= 0; found = line.toLowerCase().indexOf(word, at)) {
    parts.push(line.slice(at, found), h("mark", {}, line.slice(found, found + word.length)));
    at = found + word.length;
  }
  return [...parts, line.slice(at)];
}
