// Messages of the page: the tooltip, the toast, and the notice that replaces an
// empty grid.

import { element } from "./parts.js";

const box = (id) => document.getElementById(id);
let toasting = 0;

export function tip(lines, event) {
  const it = box("tip");
  it.replaceChildren(...lines);
  it.hidden = false;
  const { width, height } = it.getBoundingClientRect();
  it.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  const below = event.clientY + 18;
  it.style.top = `${below + height > innerHeight ? event.clientY - height - 10 : below}px`;
}

export function hideTip() {
  box("tip").hidden = true;
}

export function toast(text) {
  const it = box("toast");
  it.textContent = text;
  it.hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(() => (it.hidden = true), 3500);
}

// Shows a notice instead of the grid, with commands to type and actions to click.
export function showNotice({ title, text, commands = [], actions = [], failed = false }) {
  const it = box("empty");
  it.classList.toggle("failed", failed);
  it.replaceChildren(element("span", "sign"), element("h2", "", title), element("p", "", text));
  if (commands.length) it.append(element("pre", "", commands.join("\n")));
  if (actions.length) {
    const row = element("div", "actions");
    for (const [name, action] of actions) {
      const button = element("button", "", name);
      button.addEventListener("click", action);
      row.append(button);
    }
    it.append(row);
  }
  it.hidden = false;
}

export function hideNotice() {
  box("empty").hidden = true;
}
