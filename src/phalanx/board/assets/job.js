// The job: each role, where its time goes, who is slowest, what went wrong; the plan beside what was measured.

import { get } from "./api.js";
import { ago, badge, bytes, clock, h, number, percent, replace, span, when } from "./dom.js";

const CAUSES = { data: "Its disk or network may be slow, or it has fewer cores to decode.", compute: "Its processor may be slower, or something else runs there.", update: "" };
const SPLIT = [["data", "waiting for data"], ["compute", "computing"], ["exchange", "exchanging"], ["waiting", "waiting for slower workers"], ["update", "updating"]];

export class JobPart {
  constructor(run) {
    this.key = run.key;
    this.element = h("div", { class: "job" });
  }

  async refresh() {
    const job = await get(`/api/run/${this.key}/job`);
    const { now, ...shown } = job;
    const text = JSON.stringify(shown);
    if (this.text === text) return;
    this.text = text;
    const open = this.element.querySelector("details")?.open;
    replace(this.element,
      job.remarks.map((remark) => h("p", { class: "problem" }, remark)),
      this.slowest(job),
      this.about(job), this.roles(job), this.last(job), this.servers(job), this.system(job), this.plan(job), this.timeline(job, open));
  }

  about(job) {
    const about = job.job;
    if (!about) return h("p", { class: "quiet" }, "One process, or started by another launcher: there is no job.json.");
    const took = (about.ended ?? job.now) - about.began;
    return h("p", {}, h("code", {}, about.command ?? ""), h("br"), h("span", { class: "quiet" }, `${about.launcher}, process ${about.pid} on ${about.host} · ${about.state} ${about.state === "ended" ? "after" : "for"} ${span(took)}${about.exit_code === null || about.exit_code === undefined ? "" : `, exit code ${about.exit_code}`}${about.logs ? ` · logs in ${about.logs}` : ""}`), about.cause ? h("span", { class: "problem" }, about.cause) : null);
  }

  slowest(job) {
    if (!job.slow) return null;
    const whole = job.slowest && !job.slowest.startsWith(`worker ${job.slow.rank} `) ? ` Over the whole run, ${job.slowest}.` : "";
    if (!job.slow.clear) return h("p", { class: "quiet" }, `In the latest steps, all workers are about equally fast.${whole}`);
    const host = job.roles.find((role) => role.name === `trainer-${job.slow.rank}`)?.host;
    return h("p", { class: "slowest" }, h("b", {}, `Worker ${job.slow.rank}${host ? ` on ${host}` : ""} is slow: `), `${slowness(job.slow)} ${CAUSES[job.slow.part]}${whole}`);
  }

  roles(job) {
    if (!job.roles.length) return h("p", { class: "quiet" }, "No role has reported yet.");
    const longest = Math.max(...job.roles.map((role) => total(role)), 1e-9);
    const slow = job.slow?.clear ? job.slow.rank : null;
    return [h("h2", {}, "Roles"), legend(), h("div", { class: "scroll" }, h("table", { class: "roles" }, h("thead", {}, h("tr", {}, ["role", "host", "state", "step", "images/s", "time of a step", "starts", "heard"].map((t) => h("th", { class: ["step", "images/s", "starts"].includes(t) ? "num" : "" }, t)))),
      h("tbody", {}, job.roles.map((role) => h("tr", { class: role.name === `trainer-${slow}` ? "slow" : "" },
        h("td", {}, h("b", {}, role.name ?? "?"), role.name === `trainer-${slow}` ? h("span", { class: "tag" }, "slowest") : null),
        h("td", {}, role.host || "–"), h("td", {}, fate(role, job.state)), h("td", { class: "num" }, number(role.step, 9)), h("td", { class: "num" }, number(role.samples_per_s)),
        h("td", { class: "split" }, role.times ? [bar(role, longest), h("small", {}, `${number(1000 * total(role), 4)} ms`)] : "–"),
        h("td", { class: "num" }, role.starts > 1 ? h("b", { class: "wrong" }, String(role.starts)) : String(role.starts ?? "–")), h("td", {}, role.heard ? ago(role.heard) : "–"))))))];
  }

  last(job) {
    const last = job.last;
    if (!last) return null;
    const details = Object.entries(last.details ?? {}).filter(([, value]) => typeof value === "number");
    const facts = [
      [last.bytes_sent ? "sent a step" : "", bytes(last.bytes_sent)], [last.bytes_received ? "received a step" : "", bytes(last.bytes_received)],
      [last.compression_ratio ? "compression" : "", `${number(last.compression_ratio, 3)} ×`], ...details.map(([name, value]) => [name.replaceAll("_", " "), number(value, 3)]),
    ].filter(([name]) => name);
    return facts.length ? h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])) : null;
  }

  servers(job) {
    if (!job.data_servers.length) return null;
    return [h("h2", {}, "Data servers"), h("p", { class: "quiet" }, job.wait_share > 0.05 ? `Trainers wait for data ${percent(job.wait_share, 0)} of their time: more data servers help.` : "Data waits for trainers: there are enough data servers."),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["address", "by", "images/s", "queue", "idle", "late"].map((t) => h("th", {}, t)))),
        h("tbody", {}, job.data_servers.map((one) => h("tr", {}, h("td", {}, String(one.address ?? "?")), h("td", {}, String(one.by ?? "–")), h("td", {}, number(one.server_samples_per_s ?? one.samples_per_s)), h("td", {}, String(one.queue ?? "–")), h("td", {}, percent(one.idle, 0)), h("td", {}, String(one.late ?? "–")))))))];
  }

  system(job) {
    if (!job.system.length) return null;
    const share = (value) => (typeof value === "number" ? [h("meter", { min: "0", max: "1", value: String(value), "aria-label": "share" }), percent(value, 0)] : "–");
    const memory = (one) => (one.memory && one.memory_total ? [...share(one.memory / one.memory_total), h("small", { class: "quiet" }, `${bytes(one.memory)} of ${bytes(one.memory_total)}`)] : "–");
    const gpus = (one) => (Array.isArray(one.gpus) && one.gpus.length ? one.gpus.map((gpu) => h("div", {}, `${gpu.gpu}: ${percent(gpu.use, 0)}, ${bytes(gpu.memory)} of ${bytes(gpu.memory_total)}`)) : "–");
    return [h("h2", {}, "Hosts"), h("div", { class: "scroll" }, h("table", { class: "hosts" }, h("thead", {}, h("tr", {}, ["host", "cores busy", "memory", "first worker's memory", "GPUs"].map((t) => h("th", {}, t)))),
      h("tbody", {}, job.system.map((one) => h("tr", {}, h("td", {}, String(one.host ?? "here")), h("td", {}, share(one.cpu)), h("td", {}, memory(one)), h("td", {}, bytes(one.process_memory)), h("td", {}, gpus(one)))))))];
  }

  plan(job) {
    const plan = job.plan;
    if (!plan) return null;
    const unit = (name, value) => (name.endsWith("_s") && name !== "images_per_s" ? `${number(1000 * value)} ms` : number(value));
    const expected = ({ name, planned }) => (Array.isArray(planned) ? [h("b", {}, unit(name, planned[0])), h("small", {}, `${unit(name, planned[1])} to ${unit(name, planned[2])}`)] : typeof planned === "number" ? unit(name, planned) : "–");
    const apart = ({ planned, measured }) => { const value = Array.isArray(planned) ? planned[0] : planned; return measured && value ? `${measured >= value ? "+" : "−"}${Math.abs(100 * (measured / value - 1)).toFixed(0)} %` : "–"; };
    const titles = { images_per_s: "images/s", step_s: "a step", data_s: "waiting for data", compute_s: "computing", exchange_s: "exchanging and waiting", update_s: "updating" };
    const made = [plan.made ? `Planned ${when(plan.made)}` : "Planned", plan.made_before === false ? ", after the run began" : "", plan.basis ? `; ${plan.basis}` : "", "."].join("");
    return [h("h2", {}, "Plan and fact"), h("p", { class: "quiet" }, made, " ", plan.remark), plan.rows.length ? h("div", { class: "scroll" }, h("table", { class: "plan" }, h("thead", {}, h("tr", {}, ["", "planned", "measured", "difference"].map((t, n) => h("th", { class: n ? "num" : "" }, t)))),
      h("tbody", {}, plan.rows.map((row) => h("tr", {}, h("td", {}, titles[row.name] ?? row.name), h("td", { class: "num" }, expected(row)), h("td", { class: "num" }, h("b", {}, typeof row.measured === "number" ? unit(row.name, row.measured) : "–")), h("td", { class: "num" }, apart(row))))))) : null];
  }

  timeline(job, open) {
    const marks = job.timeline;
    if (!marks.length) return null;
    const first = marks[0].t, length = Math.max(1e-9, marks.at(-1).t - first);
    const important = marks.filter((mark) => mark.kind !== "checkpoint");
    return [h("h2", {}, "Timeline"),
      h("div", { class: "strip", "aria-hidden": "true" }, marks.map((mark) => h("i", { class: `mark ${mark.kind.replace(" ", "-")}`, title: `${clock(mark.t)} ${mark.kind}: ${mark.text}`, style: { left: `${(100 * (mark.t - first)) / length}%` } }))),
      h("div", { class: "strip-ends quiet" }, h("span", {}, when(first)), h("span", {}, span(length))),
      h("ol", { class: "events" }, important.slice(-60).reverse().map(event)),
      marks.length > Math.min(60, important.length) ? h("details", { open: open ?? false }, h("summary", {}, `all ${marks.length} events`), h("ol", { class: "events" }, [...marks].reverse().map(event))) : null];
  }
}

const event = (mark) => h("li", { class: mark.kind.replace(" ", "-") }, h("time", {}, clock(mark.t)), h("b", {}, mark.kind.replace("_", " ")), mark.step !== null && mark.step !== undefined ? h("span", { class: "quiet" }, `step ${number(mark.step, 9)}`) : null, h("span", {}, mark.text));

/** By how much a worker is slower than the others, and at what. */
export function slowness({ share, part }) {
  const words = { data: "waiting for data", compute: "computing", update: "updating" };
  const much = share >= 1 ? `${(1 + share).toFixed(1)} times as long as` : `${(100 * share).toFixed(0)} % longer than`;
  return `its steps take ${much} the others', most of it ${words[part]}.`;
}

const total = (role) => (role.times ? Object.values(role.times).reduce((sum, value) => sum + (value ?? 0), 0) : 0);

function fate(role, state) {
  const word = role.fate || (state === "running" ? "running" : "–");
  const kind = /^(killed|crashed|aborted|failed|lost|ended by)/.test(word) ? "failed" : word === "running" ? "running" : word === "finished" ? "finished" : "waiting";
  const shown = badge(kind);
  shown.lastChild.textContent = word;
  return shown;
}

function bar(role, longest) {
  const times = { ...role.times, waiting: role.waiting ?? 0 };
  times.exchange = (times.exchange ?? 0) - times.waiting;
  const sentence = SPLIT.map(([name, words]) => `${words} ${number(1000 * (times[name] ?? 0), 3)} ms`).join(", ");
  return h("div", { class: "stack", title: sentence, role: "img", "aria-label": sentence }, SPLIT.map(([name]) => h("i", { class: `t-${name}`, style: { width: `${(100 * Math.max(0, times[name] ?? 0)) / longest}%` } })));
}

const legend = () => h("p", { class: "legend" }, SPLIT.map(([name, words]) => h("span", {}, h("i", { class: `swatch t-${name}` }), words)));
