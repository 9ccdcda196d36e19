// Finds changes of results: within a trace, and the number of traces per commit.

const isPresent = (cell) => cell !== 0 && cell !== null && cell !== undefined;

// Visits the columns at which the result of a trace differs from the previous one.
function each(cells, visit) {
  let last = null;
  for (let at = 0; at < cells.length; at++) {
    if (!isPresent(cells[at])) continue;
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

export function changedColumns(cells) {
  const found = [];
  each(cells, (at) => void found.push(at));
  return found;
}

// Counts how many of these traces change at each column.
export function perColumn(data, order) {
  const counts = new Uint32Array(data.columns.length);
  for (const index of order) each(data.traces[index].cells, (at) => void counts[at]++);
  return counts;
}
