// Starts a server for the test and fills it with realistic traces.

'use strict';

const { spawn } = require('node:child_process');
const readline = require('node:readline');

// `given` are more flags; an HTTP port may be given to start again where a server was.
async function startServer({ http = '0', metastore = 'off', given = ['--ephemeral'] } = {}) {
  const ports = ['--grpc-port', '0', '--http-port', http, '--metastore-port', metastore, '--dns-port', 'off'];
  const flags = ['serve', ...ports, ...given];
  const child = spawn(process.env.STELE_BIN ?? 'stele', flags, { stdio: ['ignore', 'pipe', 'ignore'] });
  const failed = new Promise((_, reject) => child.once('error', reject));
  const lines = readline.createInterface({ input: child.stdout });
  const first = new Promise((resolve) => lines.once('line', resolve));
  const ready = JSON.parse(await Promise.race([first, failed]));
  const stop = async (signal = 'SIGTERM') => {
    const exited = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await exited;
  };
  return { url: `http://${ready.http}`, http: ready.http, metastore: ready.metastore, stop };
}

async function post(server, page, body) {
  const response = await fetch(`${server.url}/traces/v1/tables${page}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${page}: ${answer.error}`);
  return answer;
}

// Returns a pseudo-random generator with a fixed seed.
function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const TESTS = ['aarectmodes', 'blurs', 'clippedbitmapshaders', 'drawatlas', 'emboss', 'filltypes', 'gradients', 'hairlines', 'imagefilters', 'pathops', 'shadows', 'textblob'];
const DEVICES = [['Android', 'Adreno640'], ['Android', 'MaliG77'], ['iOS', 'AppleA15'], ['Linux', 'GTX1660'], ['Mac', 'AppleM1'], ['Win', 'RadeonR9']];
const AUTHORS = ['Ada Byron <ada@example.org>', 'Grace Hopper <grace@example.org>', 'Alan Turing <alan@example.org>', 'Edsger Dijkstra <edsger@example.org>'];
const SUBJECTS = ['Use wider lanes in the blur', 'Do not clip twice', 'Roll the shader compiler', 'Snap hairlines to pixels', 'Faster gradients', 'Fix leak in atlas', 'Tidy includes'];

// Creates a table of digests and numbers: some tests change permanently, some
// on one device only, some are flaky, and some results are missing.
async function fill(server, name, { commits, tests }) {
  await post(server, '', { table: name });
  const random = seeded(42);
  const day = 86_400;
  const listed = Array.from({ length: commits }, (_, at) => ({
    hash: Math.imul(at + 1, 2654435761 | 0).toString(16).replace('-', 'f').padStart(8, 'c').repeat(5),
    author: AUTHORS[Math.floor(random() ** 2 * 4)],
    time: 1_790_000_000 + Math.floor(at * day / 9 + random() * 4000),
    subject: `${SUBJECTS[Math.floor(random() * 7)]} (${at})`,
    index: at,
  }));
  await post(server, `/${name}/commits`, { commits: listed });
  const traces = [];
  for (let test = 0; test < tests; test++) {
    const breaks = random() < 0.45 ? [Math.floor(random() * commits)] : [];
    if (random() < 0.15) breaks.push(Math.floor(random() * commits));
    DEVICES.forEach(([os, gpu], device) => {
      for (const config of ['gl', 'vk']) {
        const own = random() < 0.06 ? Math.floor(random() * commits) : commits;
        const from = random() < 0.05 ? Math.floor(random() * commits) : 0;
        traces.push({ test, os, gpu, config, breaks, own, from, flaky: random() < 0.02, base: 2e5 + 1e6 * random(), device });
      }
    });
  }
  const letters = (value) => value.toString(16).padStart(8, '0').repeat(4);
  for (let at = 0; at < commits; at++) {
    const results = [];
    for (const trace of traces) {
      if (random() < 0.05 || at < trace.from) continue;
      trace.stored = true;
      let version = trace.breaks.filter((position) => position <= at).length;
      if (at >= trace.own) version += 7;
      if (trace.flaky && random() < 0.15) version += 3;
      const group = trace.test % TESTS.length;
      const params = { name: trace.test < TESTS.length ? TESTS[group] : `${TESTS[group]}_${Math.floor(trace.test / TESTS.length)}`, os: trace.os, gpu: trace.gpu, config: trace.config };
      results.push({ params, digest: letters(trace.test * 16 + version + 1) });
      if (trace.config === 'gl') {
        const level = trace.base * (1 + 0.18 * trace.breaks.filter((position) => position <= at).length);
        results.push({ params: { ...params, measure: 'real_time' }, value: level * (1 + 0.02 * (random() - 0.5)), options: { unit: 'ns' } });
      }
    }
    await post(server, `/${name}/results`, { commit: listed[at].hash, time: listed[at].time + 600, params: { arch: 'arm64' }, results });
  }
  return { traces: traces.filter((trace) => trace.stored).length, commits: listed };
}

module.exports = { startServer, post, fill };
