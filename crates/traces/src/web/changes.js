// Where results change: within a trace, and how many traces at each commit.

const there = (cell) => cell !== 0 && cell !== null && cell !== undefined;

// Visits the columns at which a trace has another result than before.
function each(cells, visit) {
  let last = null;
  for (let at = 0; at < cells.length; at++) {
    if (!there(cells[at])) continue;
    if (last !== null && cells[at] !== last && visit(at) === false) return;
    last = cells[at];
  }
}

export function hasChange(cells) {
  let found = false;
  each(cells, () => {
    found = true;
    return false;
  });
  return found;
}

export function places(cells) {
  const found = [];
  each(cells, (at) => void found.push(at));
  return found;
}

// How many of these traces change at each column.
export function perColumn(data, order) {
  const counts = new Uint32Array(data.columns.length);
  for (const place of order) each(data.traces[place].cells, (at) => void counts[at]++);
  return counts;
}
