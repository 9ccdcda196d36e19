// Tests the console in a real browser: every page in both themes with axe, edits and their
// conflicts, live changes, a server that goes and comes back, sizes. With STELE_LONG also at
// three widths, empty, and with many rows. Saves screenshots to $SCREENSHOTS if that is set.

'use strict';

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { mkdirSync, mkdtempSync, readFileSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');
const { promisify } = require('node:util');
const { gzipSync } = require('node:zlib');

const { Chromium } = require('./chromium.js');
const { post: postTraces, startServer } = require('./server.js');

const run = promisify(execFile);
const long = Boolean(process.env.STELE_LONG);
const KIB = 1024;
const SHELL = ['', 'console/style.css', 'console/app.js', 'console/lib/parts.js', 'console/lib/api.js', 'console/lib/states.js', 'console/lib/live.js'];
const MODULES = ['lib/bytes.js', 'lib/chart.js', 'lib/rows.js', ...['calls', 'catalogues', 'metastore', 'names', 'overview', 'rows', 'table', 'tables'].map((page) => `pages/${page}.js`)];
const TABLE = '/tables/stele/stele/users';
const PAGES = {
  overview: '/', tables: '/tables', table: TABLE, rows: `${TABLE}/rows?prefix=de%3A`, calls: '/calls', metastore: '/metastore?prefix=%2Fconfig%2F',
  leases: '/metastore/leases', members: '/metastore/members', names: '/names', name: '/names/services', catalogues: '/catalogues', catalogue: '/catalogues/6900000000000001%3A2', missing: '/metastore/nosuch',
};

// Runs a command against the server, which it finds by its HTTP port.
const stele = (server, ...args) => run(process.env.STELE_BIN ?? 'stele', [...args, '--server', server.http]);

async function api(server, page, body, headers = {}) {
  const options = body && { method: 'POST', headers: { 'content-type': 'application/json', origin: server.url, ...headers }, body: JSON.stringify(body) };
  const response = await fetch(`${server.url}/console/v1${page}`, options);
  const text = await response.text();
  return { status: response.status, body: text.startsWith('{') ? JSON.parse(text) : text };
}

const set = (server, key, family, qualifier, value, seen = null) => api(server, '/row', { table: 'stele/stele/users', key, family, qualifier, value, seen });
const NAMES = ['Ada', 'Grace', 'Edsger', 'Barbara', 'Donald', 'J\u00f6rg', 'Leslie', 'Margaret'];

async function fillRows(server, rows) {
  await stele(server, 'table', 'create', 'users', '--family', 'info', '--family', 'stats:maxversions=1', '--family', 'log:maxage=30d');
  for (let from = 0; from < rows; from += 20) {
    await Promise.all(Array.from({ length: Math.min(20, rows - from) }, async (_, index) => {
      const number = from + index;
      const key = `${['de', 'fr', 'uk'][number % 3]}:${String(1000 + number)}`;
      await set(server, key, 'info', 'name', NAMES[number % NAMES.length]);
      await set(server, key, 'info', 'mail', `${NAMES[number % NAMES.length].toLowerCase()}@example.org`);
      if (number % 4 === 0) await set(server, key, 'info', 'address', JSON.stringify({ street: 'Hauptstra\u00dfe', number, city: 'K\u00f6ln' }));
      if (number % 5 === 0) await set(server, key, 'stats', 'visits', String(number * 7));
    }));
  }
}

async function fillServices(server) {
  for (const [key, value] of [['/config/colour', 'blue'], ['/config/limits', '{"rows": 100, "bytes": 4096}'], ['/config/web/port', '8080'], ['/config/web/host', 'web.example'], ['/jobs/1', 'queued']]) {
    await stele(server, 'metastore', 'put', key, value);
  }
  await stele(server, 'metastore', 'put', '/config/colour', 'green');
  await stele(server, 'metastore', 'del', '/jobs/1');
  await stele(server, 'name', 'mount', 'services/web', '10.0.0.7:80');
  await stele(server, 'name', 'mount', 'services/db', '10.0.0.8:5432', '--ttl', '10m');
  await stele(server, 'catalogue', 'create', 'i|1:2');
  await stele(server, 'catalogue', 'put', 'i|1:2', 'colour=green', 'shape=round');
}

describe('the console', { timeout: 600_000 }, () => {
  let server;
  let browser;
  let axe;

  before(async () => {
    axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
    server = await startServer({ metastore: '0' });
    browser = await Chromium.start(1440, 900);
    await fillRows(server, 60);
    await fillServices(server);
  });

  after(async () => {
    await browser?.stop();
    await server?.stop();
  });

  const shot = (name) => {
    const folder = process.env.SCREENSHOTS;
    if (folder) mkdirSync(folder, { recursive: true });
    return folder && browser.screenshot(path.join(folder, `${name}.png`));
  };
  const open = async (page, at = server) => {
    await browser.open('about:blank');
    await browser.open(`${at.url}${page}`);
    await browser.until(`document.body?.dataset.page`);
  };
  const text = (selector) => browser.evaluate(`document.querySelector(${JSON.stringify(selector)}).innerText`);
  const type = (typed) => browser.send('Input.insertText', { text: typed });
  const theme = (name) => browser.evaluate(`document.documentElement.dataset.theme = ${JSON.stringify(name)}; 0`);

  // Fails on violations of WCAG 2.2 AA, and if the page is wider than the window.
  async function check(name) {
    await browser.evaluate(`${axe}; 0`);
    const found = await browser.evaluate(`axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
      .then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 160)).join(' | ')))`);
    assert.deepEqual(found, [], name);
    const [page, wide] = await browser.evaluate('[document.documentElement.scrollWidth, innerWidth]');
    assert.ok(page <= wide, `${name} is ${page} px wide in a window of ${wide}`);
  }

  test('every page is accessible in both themes', async () => {
    const widths = long ? [1440, 800, 390] : [1440];
    for (const width of widths) {
      await browser.resize(width, 900);
      for (const [name, page] of Object.entries(PAGES)) {
        await open(page);
        for (const colours of ['light', 'dark']) {
          await theme(colours);
          await check(`${name} ${colours} ${width}`);
          await shot(`${name}-${width}-${colours}`);
        }
      }
    }
    await browser.resize(1440, 900);
  });

  test('a narrow window has everything and no sideways scroll', async () => {
    await browser.resize(390, 780);
    try {
      for (const name of ['overview', 'rows', 'metastore']) {
        await open(PAGES[name]);
        await check(`${name} 390`);
        await shot(`narrow-${name}`);
      }
    } finally {
      await browser.resize(1440, 900);
    }
  });

  test('rows are found in the box at the top and edited by keyboard alone', async () => {
    await open('/');
    await browser.key('/');
    await browser.until(`document.activeElement.id === 'query'`);
    await type('users de:1003');
    await browser.send('Input.dispatchKeyEvent', { type: 'keyDown', key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13, text: '\r' });
    await browser.until(`document.querySelector('.detail h2')?.innerText === 'de:1003'`);
    assert.equal(await browser.evaluate('location.pathname + location.search'), `${TABLE}/rows?key=de%3A1003`);
    await shot('detail');
    await browser.evaluate('document.activeElement.blur()');
    await browser.key('e');
    await browser.until(`document.activeElement.tagName === 'TEXTAREA'`);
    await browser.evaluate('document.activeElement.select()');
    await type('Ada Lovelace');
    await shot('edit');
    await browser.evaluate(`[...document.querySelectorAll('.detail button')].find((it) => it.innerText === 'review').focus()`);
    await browser.send('Input.dispatchKeyEvent', { type: 'keyDown', key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13, text: '\r' });
    await browser.until(`document.activeElement.innerText === 'save'`);
    await shot('review');
    await browser.send('Input.dispatchKeyEvent', { type: 'keyDown', key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13, text: '\r' });
    await browser.until(`/Ada Lovelace/.test(document.querySelector('.detail').innerText) && !document.querySelector('.detail textarea')`);
    const { stdout } = await stele(server, 'lookup', 'users', 'de:1003', '--json');
    assert.match(stdout, /Ada Lovelace/);
  });

  test('an edit of a cell that was changed meanwhile saves nothing and shows both values', async () => {
    await open(`${TABLE}/rows?key=de%3A1006`);
    await browser.until(`document.querySelector('.detail [data-edit]')`);
    await browser.key('e');
    await browser.until(`document.activeElement.tagName === 'TEXTAREA'`);
    const name = await text('.detail .line .mono');
    await stele(server, 'set', 'users', 'de:1006', `info:${name}=theirs`);
    await browser.evaluate('document.activeElement.select()');
    await type('mine');
    const press = (label) => browser.evaluate(`[...document.querySelectorAll('.detail button')].find((it) => it.innerText === '${label}').click()`);
    await press('review');
    await press('save');
    await browser.until(`/Somebody else changed/.test(document.querySelector('.detail').innerText)`);
    const detail = await text('.detail');
    assert.match(detail, /now\s+theirs\s+yours\s+mine/);
    await shot('conflict');
    const { stdout } = await stele(server, 'lookup', 'users', 'de:1006', '--columns', `info:${name}`, '--versions', '1', '--json');
    assert.match(stdout, /theirs/);
  });

  test('a change from another origin, without an origin or of another type is refused', async () => {
    const body = { table: 'stele/stele/users', key: 'x', family: 'info', qualifier: 'q', value: 'v' };
    for (const headers of [{ origin: 'http://evil.example' }, { origin: 'null' }, { origin: '' }, { 'content-type': 'text/plain' }]) {
      const { status } = await api(server, '/row', body, headers);
      assert.ok(status === 403 || status === 400, `${JSON.stringify(headers)}: ${status}`);
    }
    const { body: rows } = await api(server, '/rows?table=stele/stele/users&key=x');
    assert.deepEqual(rows.rows, []);
    const reserved = await api(server, '/rows?table=stele-system/names/nodes');
    assert.equal(reserved.status, 403);
  });

  test('keys of the metastore appear as they change, and an old value is put back', async () => {
    await open('/metastore?prefix=%2Fconfig%2F');
    await browser.until(`document.querySelectorAll('.list .row').length === 4`);
    await stele(server, 'metastore', 'put', '/config/live', 'yes');
    await browser.until(`document.querySelectorAll('.list .row').length === 5`);
    await shot('metastore-live');
    await stele(server, 'metastore', 'del', '/config/live');
    await browser.until(`document.querySelectorAll('.list .row').length === 4`);
    await browser.key('ArrowDown');
    await browser.key('Enter');
    await browser.until(`/put back/.test(document.querySelector('.detail').innerText)`);
    await shot('metastore-key');
    await browser.evaluate(`[...document.querySelectorAll('.detail button')].find((it) => it.innerText === 'put back').click()`);
    await browser.until(`[...document.querySelectorAll('.list .row')].some((row) => /colour\\s*blue/.test(row.innerText))`);
    const { stdout } = await stele(server, 'metastore', 'get', '/config/colour');
    assert.match(stdout, /blue/);
  });

  test('an earlier revision shows the keys of then, and a deleted key has a history', async () => {
    const { body } = await api(server, '/metastore/key?key=/jobs/1');
    assert.equal(body.changes[0].deleted, true);
    assert.equal(body.changes[1].value, 'queued');
    await open(`/metastore?revision=${body.changes[1].revision}`);
    await browser.until(`[...document.querySelectorAll('.list .row')].some((row) => /jobs/.test(row.innerText))`);
    assert.match(await text('.slider'), /back to now/);
    await shot('metastore-past');
  });

  test('rates arrive while the page is open, and pausing stops them', async () => {
    await open('/');
    await browser.until(`document.querySelector('.spark path')`);
    const line = () => browser.evaluate(`document.querySelector('.spark path.first').getAttribute('d')`);
    const first = await line();
    await browser.until(`document.querySelector('.spark path.first').getAttribute('d') !== ${JSON.stringify(first)}`);
    await browser.key('.');
    assert.equal(await browser.evaluate(`document.querySelector('#pause').getAttribute('aria-pressed')`), 'true');
    await browser.key('.');
  });

  test('keys lead to the sections and the theme', async () => {
    await open('/');
    for (const [key, page] of [['t', '/tables'], ['m', '/metastore'], ['n', '/names'], ['c', '/catalogues'], ['s', '/calls'], ['o', '/']]) {
      await browser.key('g');
      await browser.key(key);
      await browser.until(`location.pathname === '${page}' && document.body.dataset.page`);
    }
    const before = await browser.evaluate('document.documentElement.dataset.theme');
    await browser.key('t');
    assert.notEqual(await browser.evaluate('document.documentElement.dataset.theme'), before);
    await browser.key('?');
    assert.equal(await browser.evaluate(`document.querySelector('#help').open`), true);
    await shot('help');
    await check('help');
  });

  test('names in data are shown and not obeyed', async () => {
    const hostile = '<img src=x onerror=window.hacked=1>';
    await set(server, hostile, 'info', hostile, `<script>window.hacked=1</script>`);
    await open(`${TABLE}/rows?key=${encodeURIComponent(hostile)}`);
    await browser.until(`document.querySelector('.detail .cell')`);
    assert.match(await text('.detail'), /<script>/);
    assert.equal(await browser.evaluate('window.hacked'), undefined);
    await api(server, '/row', { table: 'stele/stele/users', key: hostile, delete_row: true });
  });

  test('an empty server says how to begin', async () => {
    const fresh = await startServer({ metastore: '0' });
    try {
      const pages = { tables: /table create/, names: /name mount/, metastore: /metastore put/, calls: /No slow calls/ };
      for (const [page, wanted] of Object.entries(pages)) {
        await open(`/${page}`, fresh);
        assert.match(await text('#main'), wanted);
        if (long) await check(`empty ${page}`);
        await shot(`empty-${page}`);
      }
    } finally {
      await fresh.stop();
    }
    const only = await startServer();
    try {
      await open('/metastore', only);
      assert.match(await text('#main'), /Not on this server/);
    } finally {
      await only.stop();
    }
  });

  test('a console that only reads refuses changes', async () => {
    const reader = await startServer({ given: ['--ephemeral', '--console', 'read'] });
    try {
      const refused = await api(reader, '/row', { table: 'p/i/t', key: 'k', family: 'f', qualifier: 'q', value: 'v' });
      assert.equal(refused.status, 403);
      assert.match(refused.body.error, /--console write/);
    } finally {
      await reader.stop();
    }
    const off = await startServer({ given: ['--ephemeral', '--console', 'off'] });
    try {
      assert.equal((await fetch(`${off.url}/`)).status, 404);
      assert.equal((await fetch(`${off.url}/health`)).status, 200);
    } finally {
      await off.stop();
    }
  });

  test('a page outlives a killed server and goes on when it is back', async () => {
    const data = mkdtempSync(path.join(tmpdir(), 'stele-console-'));
    try {
      const first = await startServer({ metastore: '0', given: ['--data', data] });
      await open('/', first);
      await browser.until(`document.querySelector('.spark path')`);
      await first.stop('SIGKILL');
      await browser.until(`!document.querySelector('#away').hidden`);
      await shot('away');
      const second = await startServer({ http: first.http.split(':').at(-1), metastore: '0', given: ['--data', data] });
      try {
        await browser.until(`document.querySelector('#away').hidden`);
        const old = await browser.evaluate(`document.querySelector('.spark path.first').getAttribute('d')`);
        await browser.until(`document.querySelector('.spark path.first').getAttribute('d') !== ${JSON.stringify(old)}`);
      } finally {
        await second.stop();
      }
    } finally {
      rmSync(data, { recursive: true, force: true });
    }
    // The browser reports requests that did not reach the server.
    browser.problems = browser.problems.filter((problem) => !/ERR_|Failed to load/.test(problem));
  });

  test('the shell and the whole console are small', async () => {
    const size = async (file) => gzipSync(Buffer.from(await (await fetch(`${server.url}/${file}`)).arrayBuffer())).length;
    const sum = async (files) => (await Promise.all(files.map(size))).reduce((a, b) => a + b, 0);
    const shell = await sum(SHELL);
    const whole = shell + (await sum(MODULES.map((file) => `console/${file}`)));
    console.log(`shell ${shell} bytes, whole console ${whole} bytes, compressed`);
    assert.ok(shell <= 40 * KIB, `the shell has ${shell} bytes`);
    assert.ok(whole <= 200 * KIB, `the console has ${whole} bytes`);
  });

  test('many rows are scrolled with few elements', { skip: !long && 'only with STELE_LONG' }, async () => {
    await fillRows(server, 3000).catch(() => {});
    await open(`${TABLE}/rows`);
    for (let page = 0; page < 40; page++) {
      await browser.evaluate(`document.querySelector('.list').scrollTop = 1e9`);
      await browser.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
    }
    assert.ok((await browser.evaluate('document.querySelectorAll("*").length')) < 2000);
  });

  test('the page of traces leads back here', async () => {
    await postTraces(server, '', { table: 'ci' });
    await browser.open('about:blank');
    await browser.open(`${server.url}/traces`);
    await browser.until(`document.querySelector('.brand[href="/"]')`);
  });

  test('the pages logged no errors', () => {
    assert.deepEqual(browser.problems, []);
  });
});
