// Tests the traces page in a real browser: its contents, its use with mouse and
// keyboard, and the time to paint a large grid. Saves screenshots to $SCREENSHOTS
// if that is set.

'use strict';

const assert = require('node:assert/strict');
const { mkdirSync } = require('node:fs');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');

const { Chromium } = require('./chromium.js');
const { fill, post, startServer } = require('./server.js');

const LARGE = { commits: 256, tests: 84 };
const HUGE = { commits: 32, tests: 840 };
const SHIFT = 8;

describe('the traces page', { timeout: 600_000 }, () => {
  let server;
  let browser;
  let filled;

  before(async () => {
    server = await startServer();
    browser = await Chromium.start(1440, 900);
    filled = await fill(server, 'gold', { commits: 120, tests: 12 });
  });

  after(async () => {
    await browser?.stop();
    await server?.stop();
  });

  const shot = (name) => {
    const folder = process.env.SCREENSHOTS;
    if (folder) mkdirSync(folder, { recursive: true });
    return browser.screenshot(folder && path.join(folder, `${name}.png`));
  };
  const open = async (hash) => {
    await browser.open('about:blank');
    await browser.open(`${server.url}/traces#${hash}`);
    await browser.until('document.body.dataset.paintedMs !== undefined');
  };
  const text = (selector) => browser.evaluate(`document.querySelector(${JSON.stringify(selector)}).innerText`);
  const key = (name) => browser.key(name);

  test('the grid shows every trace, coloured by digest', async () => {
    await open('table=gold&n=120');
    assert.match(await text('#summary'), new RegExp(`${filled.traces} traces × 120 commits`));
    const colours = await browser.evaluate(`(() => {
      const canvas = document.querySelector('#canvas');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      const seen = new Set();
      for (let at = 0; at < pixels.length; at += 4 * 7) seen.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]);
      return seen.size;
    })()`);
    assert.ok(colours > 8, `only ${colours} colours on the canvas`);
    await shot('grid-light');
    await key('t');
    assert.equal(await browser.evaluate('document.documentElement.dataset.theme'), 'dark');
    await shot('grid-dark');
    await key('t');
    await open('table=gold&n=24&q=name%3Dblurs');
    await shot('grid-dots');
  });

  test('the legend explains the colours and lists the digests of the selected trace', async () => {
    await open('table=gold&n=120&q=name%3Dblurs');
    assert.match(await text('#legend'), /most common of the test/);
    assert.equal(await browser.evaluate(`document.querySelectorAll('#legend .digest').length`), 0);
    await key('ArrowDown');
    assert.match(await text('#legend'), /^blurs/);
    assert.match(await browser.evaluate(`document.querySelector('#announcement').textContent`), /^blurs · .*, [0-9a-f]{10} untriaged$/);
    assert.ok((await browser.evaluate(`document.querySelectorAll('#legend .digest').length`)) > 1);
    await open('table=gold&n=120&kind=numbers');
    assert.match(await text('#legend'), /30 % more/);
  });

  test('the builder filters the grid and can negate a filter', async () => {
    await open('table=gold&n=120');
    const click = (value) => browser.evaluate(`[...document.querySelectorAll('.value')].find((it) => it.textContent === '${value}').click()`);
    await click('Android');
    await browser.until(`document.body.dataset.traces === '48'`);
    assert.equal(await browser.evaluate('document.querySelector("#query").value'), 'os=Android');
    await click('iOS');
    await browser.until(`document.body.dataset.traces === '72'`);
    await shot('builder');
    await click('Android');
    await click('iOS');
    await browser.until(`document.querySelector('#query').value === 'os=!iOS' && document.body.dataset.traces === '120'`);
    assert.match(await browser.evaluate('location.hash'), /q=os%3D%21iOS/);
    await browser.evaluate('history.back()');
    await browser.until(`document.querySelector('#query').value === 'os=iOS' && document.body.dataset.traces === '24'`);
    await browser.evaluate(`document.querySelector('#clear').click()`);
    await browser.until(`document.body.dataset.traces === '${filled.traces}'`);
  });

  test('a click on a cell shows its commit, its result and the commits that may have introduced it', async () => {
    await open('table=gold&n=120&q=name=blurs');
    await browser.move(700, 300);
    await browser.until(`!document.querySelector('#tip').hidden`);
    await browser.click(700, 200);
    await browser.until(`document.querySelector('#detail .strip') !== null`);
    const detail = await text('#detail');
    assert.match(detail, /blurs/);
    assert.match(detail, /COMMIT @/i);
    assert.match(detail, /HISTORY/i);
    await shot('detail');
    await browser.click(900, 120);
    await browser.until(`/changed/i.test(document.querySelector('#detail').innerText)`);
    await shot('commit');
  });

  test('two commits are compared, with the mouse or with keys', async () => {
    await open('table=gold&n=120');
    const { left, top, width } = await browser.evaluate(`(({ left, top, width }) => ({ left, top, width }))(document.querySelector('#canvas').getBoundingClientRect())`);
    await browser.click(left + width - 30, top + 30);
    await browser.until(`document.querySelector('#detail .diff') !== null`);
    const head = filled.commits.length - 1;
    const [newest, other] = [await text('#detail h2'), await browser.evaluate(`document.querySelector('#canvas').getBoundingClientRect().left + 380`)];
    await browser.click(other, top + 30, SHIFT);
    await browser.until(`/changed from @/i.test(document.querySelector('#detail').innerText) && document.querySelector('#detail .diff') !== null`);
    assert.notEqual(await text('#detail h2'), newest);
    const detail = await text('#detail');
    const [, from, to] = detail.match(/changed from @(\d+) to @(\d+)/i).map(Number);
    assert.ok(from < to && to > head - 5, detail);
    const counted = Number((await text('#detail .diff')).match(/^(\d+) of/)[1]);
    const response = await fetch(`${server.url}/traces/v1/tables/gold/diff?from=@${from}&to=@${to}`);
    assert.equal(counted, (await response.json()).total);
    await shot('diff');
    await browser.evaluate(`document.querySelector('#detail .row').click()`);
    await browser.until(`document.querySelector('#detail .strip') !== null`);
    await key('Escape');
    for (const one of ['End', 'm', 'Home', 'c']) await key(one);
    await browser.until(`/changed from @0 to @${head}/i.test(document.querySelector('#detail').innerText)`);
  });

  test('keys move, find changes and triage', async () => {
    await open('table=gold&n=120&changed=1');
    await key('ArrowDown');
    await key('[');
    await key('Enter');
    await browser.until(`document.querySelector('#detail .triage') !== null`);
    await key('p');
    await browser.until(`document.querySelector('#detail [data-label=positive]')?.getAttribute('aria-pressed') === 'true'`);
    const digest = await browser.evaluate(`document.querySelector('#detail .row').title`);
    const name = await text('#detail h2');
    const response = await fetch(`${server.url}/traces/v1/tables/gold/labels?test=${name}`);
    assert.equal((await response.json()).labels[digest].label, 'positive');
    await key('n');
    await browser.until(`document.querySelector('#detail [data-label=negative]')?.getAttribute('aria-pressed') === 'true'`);
    await shot('triage');
    await key('Escape');
    assert.equal(await browser.evaluate(`document.querySelector('#detail').hidden`), true);
    await key('?');
    assert.equal(await browser.evaluate(`document.querySelector('#help').open`), true);
  });

  test('the blame list leads to the cells', async () => {
    await open('table=gold&n=120&view=blame');
    await browser.until(`document.querySelectorAll('.card').length > 3`);
    await shot('blame');
    const cards = await browser.evaluate(`document.querySelectorAll('.card').length`);
    await browser.evaluate(`document.querySelector('.card [data-label=positive]').click()`);
    await browser.until(`document.querySelectorAll('.card').length === ${cards - 1}`);
    await browser.evaluate(`document.querySelector('.card').focus()`);
    await key('Enter');
    await browser.until(`document.querySelector('#detail .triage') !== null`);
    assert.equal(await browser.evaluate(`document.querySelector('#scroller').hidden`), false);
  });

  test('numbers have a chart with their steps', async () => {
    await open('table=gold&n=120&kind=numbers');
    await browser.until(`!document.querySelector('#chart-box').hidden`);
    await key('s');
    await browser.until(`document.querySelectorAll('.card .up').length > 0`);
    await shot('steps');
    await browser.evaluate(`document.querySelector('.card').click()`);
    await browser.until(`!document.querySelector('#chart-box').hidden && document.querySelector('#detail h2') !== null`);
    await browser.until(`/introduced by/i.test(document.querySelector('#detail').innerText)`);
    await shot('numbers');
  });

  test('a store without tables and a table without results explain what to do', async () => {
    const fresh = await startServer();
    try {
      await browser.open('about:blank');
      await browser.open(`${fresh.url}/traces`);
      await browser.until(`!document.querySelector('#empty').hidden`);
      assert.match(await text('#empty'), /stele traces init/);
      await shot('no-tables');
      await post(fresh, '', { table: 'mine' });
      await browser.evaluate(`document.querySelector('#empty button').click()`);
      await browser.until(`/stele traces ingest mine/.test(document.querySelector('#empty').innerText)`);
      await shot('no-results');
    } finally {
      await fresh.stop();
    }
    await open('table=gold&q=os%3DBeOS');
    assert.match(await text('#empty'), /No trace matches/);
    await browser.evaluate(`document.querySelector('#empty button').click()`);
    await browser.until(`document.body.dataset.traces === '${filled.traces}'`);
  });

  test('an error replaces the grid and offers a way back', async () => {
    await browser.open('about:blank');
    await browser.open(`${server.url}/traces#table=gold&q=os%3D~(`);
    await browser.until(`document.body.dataset.failed !== undefined`);
    assert.match(await text('#empty'), /pattern of "os"/);
    await shot('failed');
    await browser.evaluate(`[...document.querySelectorAll('#empty button')].at(-1).click()`);
    await browser.until(`document.body.dataset.traces === '${filled.traces}'`);
    assert.equal(await browser.evaluate(`document.querySelector('#empty').hidden`), true);
  });

  test('on a narrow screen the builder opens over the grid', async () => {
    await browser.resize(800, 900);
    try {
      await open('table=gold&n=120');
      const seen = () => browser.evaluate(`document.querySelector('#builder').checkVisibility()`);
      assert.equal(await seen(), false);
      await shot('narrow');
      await browser.evaluate(`document.querySelector('#filter-open').click()`);
      assert.equal(await seen(), true);
      await shot('narrow-builder');
      await key('Escape');
      assert.equal(await seen(), false);
      assert.ok((await browser.evaluate('document.documentElement.scrollWidth')) <= 800);
      await key('ArrowDown');
      await key('Enter');
      await browser.until(`document.querySelector('#detail .strip') !== null`);
      await shot('narrow-detail');
    } finally {
      await browser.resize(1440, 900);
    }
  });

  test('names in results are escaped', async () => {
    await post(server, '', { table: 'hostile' });
    await post(server, '/hostile/commits', { commits: [{ hash: 'abcdef1', subject: '<img src=x onerror=alert(1)>' }] });
    const params = { name: '<script>window.hacked = 1</script>', 'k,=%': '"><b>' };
    await post(server, '/hostile/results', { commit: 'abcdef1', results: [{ params, content: 'x' }] });
    await open('table=hostile');
    await browser.click(330, 150);
    await browser.key('ArrowDown');
    await browser.key('Enter');
    await browser.until(`document.querySelector('#detail .strip') !== null`);
    assert.equal(await browser.evaluate('window.hacked'), undefined);
    assert.equal(await browser.evaluate(`document.querySelectorAll('#detail img, #detail script, #detail b b').length`), 0);
  });

  test('a thousand traces of 256 commits are painted, and scrolling reaches the last', async () => {
    const { traces } = await fill(server, 'large', LARGE);
    assert.ok(traces >= 1000);
    await open('table=large&n=256');
    const painted = Number(await browser.evaluate('document.body.dataset.paintedMs'));
    console.log(`${traces} traces x 256 commits: requested, received and painted in ${painted} ms`);
    assert.match(await text('#summary'), /1,008 traces × 256 commits/);
    await browser.evaluate(`document.querySelector('#scroller').scrollTop = 1e9`);
    await shot('large');
    const drawn = await browser.evaluate(`(() => {
      const started = performance.now();
      const scroller = document.querySelector('#scroller');
      for (let at = 0; at < 20; at++) { scroller.scrollTop = at * 700; scroller.dispatchEvent(new Event('scroll')); }
      return performance.now() - started;
    })()`);
    assert.ok(Number.isFinite(drawn));
    // Selects the names among 84 that match the typed text. An animation frame that
    // was requested earlier must not be mistaken for the frame of this response.
    await browser.evaluate(`(() => {
      document.querySelector('#scroller').dispatchEvent(new Event('scroll'));
      const find = document.querySelector('.find');
      find.value = 'BLUR';
      find.dispatchEvent(new Event('input'));
      find.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));
    })()`);
    await browser.until(`document.body.dataset.traces === '84' && document.querySelector('#query').value === 'name=~(?i)BLUR'`);
    await shot('pattern');
    await browser.evaluate(`document.querySelector('.pattern').click()`);
    await browser.until(`document.body.dataset.traces === '${traces}' && document.querySelector('#query').value === ''`);
  });

  test('ten thousand traces can be scrolled, and only the visible part is drawn', async () => {
    const { traces } = await fill(server, 'huge', HUGE);
    assert.ok(traces >= 10_000);
    await open('table=huge&n=32');
    const painted = Number(await browser.evaluate('document.body.dataset.paintedMs'));
    console.log(`${traces} traces x 32 commits: requested, received and painted in ${painted} ms`);
    assert.match(await text('#summary'), new RegExp(`${traces.toLocaleString('en-US')} traces .*× 32 commits`));
    const boxes = await browser.evaluate('document.querySelectorAll("main *").length');
    assert.ok(boxes < 100, `${boxes} elements, although the grid is one canvas`);
    await key('ArrowDown');
    for (let page = 0; page < 3; page++) await key('PageDown');
    const scrolled = await browser.evaluate(`document.querySelector('#scroller').scrollTop`);
    assert.ok(scrolled > 1000, `the grid did not scroll to the selection: ${scrolled}`);
    await browser.evaluate(`document.querySelector('#scroller').scrollTop = 1e9`);
    await shot('huge');
    assert.equal(await browser.evaluate(`document.querySelector('#canvas').height <= 900`), true);
  });

  test('the tooltip of a cell shows the options of its trace', async () => {
    await open('table=gold&n=120&kind=numbers&q=name=blurs');
    await browser.move(800, 220);
    await browser.until(`/unit ns/.test(document.querySelector('#tip').innerText)`);
  });

  test('the page logged no errors', () => {
    assert.deepEqual(browser.problems, []);
  });
});
