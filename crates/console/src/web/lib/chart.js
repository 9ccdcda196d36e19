// A small chart of one or two series over 15 minutes.

import { at, h } from "./parts.js";

const WIDTH = 300;
const HEIGHT = 46;
const SECONDS = 900;
const SVG = "http://www.w3.org/2000/svg";

const svg = (name, attributes) => {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
};

export class Spark {
  // `read` returns the numbers of a sample; `show` formats one.
  constructor(title, read, show, names = []) {
    Object.assign(this, { title, read, show, names, samples: [] });
    this.value = h("div", { class: "value" });
    this.svg = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.box = h("section", { class: "tile" }, h("h2", {}, title), this.value, this.svg);
    this.box.addEventListener("pointermove", (event) => this.point(event));
    this.box.addEventListener("pointerleave", () => this.point(null));
  }

  draw(samples) {
    this.samples = samples;
    const last = samples.at(-1);
    const now = last ? this.read(last) : [null];
    const text = (number) => (number === null ? "–" : this.show(number));
    this.value.replaceChildren(...now.flatMap((number, index) => [index ? h("small", {}, " ") : "", text(number), this.names[index] ? h("small", {}, this.names[index]) : ""]));
    const to = last?.at ?? 0;
    const top = Math.max(1e-9, ...samples.flatMap((sample) => this.read(sample).map((number) => number ?? 0)));
    const x = (sample) => WIDTH - ((to - sample.at) * WIDTH) / SECONDS;
    const y = (number) => HEIGHT - 1.5 - (HEIGHT - 5) * ((number ?? 0) / top);
    const paths = [];
    for (let series = 0; series < now.length; series++) {
      const line = samples.map((sample, index) => `${index ? "L" : "M"}${x(sample).toFixed(1)} ${y(this.read(sample)[series]).toFixed(1)}`).join("");
      if (!line) continue;
      if (series === 0) paths.push(svg("path", { class: "area", d: `${line}V${HEIGHT}H${x(samples[0]).toFixed(1)}Z` }));
      paths.push(svg("path", { class: series ? "second" : "first", d: line }));
    }
    this.svg.replaceChildren(...paths);
  }

  point(event) {
    const tip = at("tip");
    this.svg.querySelector("line")?.remove();
    const last = this.samples.at(-1);
    if (!event || !last) return (tip.hidden = true);
    const { left, width } = this.svg.getBoundingClientRect();
    const time = last.at - (1 - (event.clientX - left) / width) * SECONDS;
    const near = this.samples.reduce((best, sample) => (Math.abs(sample.at - time) < Math.abs(best.at - time) ? sample : best), last);
    const position = WIDTH - ((last.at - near.at) * WIDTH) / SECONDS;
    this.svg.append(svg("line", { x1: position, x2: position, y1: 0, y2: HEIGHT }));
    const texts = this.read(near).map((number, index) => `${number === null ? "–" : this.show(number)} ${this.names[index] ?? ""}`);
    tip.textContent = `${new Date(near.at * 1000).toLocaleTimeString("en-GB")} · ${texts.join(" · ")}`;
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.clientY + 16}px`;
  }
}
