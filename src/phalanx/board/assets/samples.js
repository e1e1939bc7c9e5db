// Training images as the model sees them: framed, augmented, mixed. The server draws them from the run's data.

import { picture } from "./api.js";
import { h, replace } from "./dom.js";

export class SamplesPart {
  constructor() {
    this.element = h("div", {}, h("p", { class: "quiet" }, "Reading the run's data: this takes some seconds …"));
  }

  async refresh(run) {
    if (this.asked) return;
    this.asked = true;
    try {
      this.address = URL.createObjectURL(await picture(`/api/run/${run.key}/samples`));
      replace(this.element, h("p", { class: "quiet" }, "The first images of epoch 1, after crops, flips, erasing and mixing, as they go into the model."), h("img", { class: "samples", src: this.address, alt: "augmented training images" }));
    } catch (error) {
      replace(this.element, h("p", { class: "quiet" }, "No samples can be drawn:"), h("pre", { class: "problem" }, error.message));
    }
  }

  close() { if (this.address) URL.revokeObjectURL(this.address); }
}
