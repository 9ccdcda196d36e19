// Colours of digests and numbers. The most common digest of a test has a muted
// colour and the others stand out; equal digests have equal colours.

const digests = {
  light: { calm: "#b4c4dd", loud: ["#ef8d0e", "#d63a75", "#2f9e5b", "#7a52e0", "#16a3bd", "#d4ac00", "#b5452c", "#7d8b2f", "#2f5fbf"] },
  dark: { calm: "#41557a", loud: ["#f3a033", "#ec5a92", "#4cc07d", "#9c7cf2", "#35c0da", "#e3c02e", "#de6c50", "#a4b350", "#6d9bff"] },
};
const words = {
  light: { passed: "#a5d3ba", failed: "#d23b48", skipped: "#d7dde6" },
  dark: { passed: "#2f6d51", failed: "#f0616d", skipped: "#3b4557" },
};

export const isDark = () => document.documentElement.dataset.theme === "dark";
const mode = () => (isDark() ? "dark" : "light");

// Ranks the digests of each test by frequency.
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
    ranked.set(test, new Map(order.map(([number, count], rank) => [number, { rank, count }])));
  }
  return ranked;
}

export function rankColour(rank) {
  const { calm, loud } = digests[mode()];
  return rank === 0 ? calm : loud[(rank - 1) % loud.length];
}

export const wordColour = (word) => words[mode()][word];

// Returns the colour for the deviation of a number from the median of its trace:
// blue is less, red is more.
export function numberColour(share) {
  const far = Math.max(-1, Math.min(1, share / 0.3));
  const strength = Math.abs(far) ** 0.7;
  const ground = isDark() ? [50, 61, 80] : [217, 224, 235];
  const end = far > 0 ? (isDark() ? [240, 98, 110] : [205, 50, 66]) : isDark() ? [86, 160, 255] : [40, 112, 214];
  const mixed = ground.map((from, at) => Math.round(from + (end[at] - from) * strength));
  return `rgb(${mixed.join(" ")})`;
}

// Returns the colours of the style sheet, for drawing on a canvas.
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["panel", "ground", "line", "thread", "text", "soft", "faint", "accent", "accent-soft", "good", "bad"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
