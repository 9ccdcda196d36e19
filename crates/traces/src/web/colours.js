// Colours of digests and numbers. Within a test the most common digest is
// calm and every other one stands out; equal digests have equal colours.

const light = ["#6f93c9", "#f0a030", "#d8576b", "#3fae86", "#9a6bd0", "#d9b600", "#2aa7c9", "#e2764a", "#7f8f3a", "#c65ca6"];
const dark = ["#4f73ad", "#e79a2f", "#e0637a", "#46b98f", "#a67be0", "#d8bb2a", "#3db4d6", "#ea8055", "#98a84b", "#d570b6"];
const words = {
  light: { passed: "#5cb585", failed: "#d64550", skipped: "#c3cad5" },
  dark: { passed: "#3c9a6c", failed: "#ec5a66", skipped: "#4b5668" },
};

export const isDark = () => document.documentElement.dataset.theme === "dark";

// The rank of each digest within its test, by how often it occurs.
export function ranks(data, testKey) {
  const tests = new Map();
  for (const trace of data.traces) {
    const test = trace.params[testKey] ?? "";
    let counts = tests.get(test);
    if (!counts) tests.set(test, (counts = new Map()));
    for (const cell of trace.cells) if (cell) counts.set(cell, (counts.get(cell) || 0) + 1);
  }
  const ranked = new Map();
  for (const [test, counts] of tests) {
    const order = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    ranked.set(test, new Map(order.map(([number], at) => [number, at])));
  }
  return ranked;
}

export function rankColour(rank) {
  const palette = isDark() ? dark : light;
  return rank === 0 ? palette[0] : palette[1 + ((rank - 1) % (palette.length - 1))];
}

export function wordColour(word) {
  return words[isDark() ? "dark" : "light"][word];
}

// How far a number lies from the middle of its trace: blue is less, red more.
export function numberColour(share) {
  const far = Math.max(-1, Math.min(1, share / 0.3));
  const strength = Math.abs(far) ** 0.6;
  const ground = isDark() ? [52, 62, 80] : [222, 228, 237];
  const end = far > 0 ? (isDark() ? [240, 98, 110] : [205, 50, 66]) : isDark() ? [86, 160, 255] : [40, 112, 214];
  const mixed = ground.map((from, at) => Math.round(from + (end[at] - from) * strength));
  return `rgb(${mixed.join(" ")})`;
}

export function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
