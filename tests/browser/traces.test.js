// The page of traces in a real browser: what it shows, how it is used with
// mouse and keys, and how long a large grid takes. Screenshots are kept in
// $SCREENSHOTS if that is set.

'use strict';

const assert = require('node:assert/strict');
const { mkdirSync } = require('node:fs');
const path = require('node:path');
const { after, before, describe, test } = require('node:test');

const { Chromium } = require('./chromium.js');
const { fill, post, startServer } = require('./server.js');

const LARGE = { commits: 256, tests: 84 };
const HUGE = { commits: 32, tests: 840 };

describe('the page of traces', { timeout: 600_000 }, () => {
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
    assert.ok(colours > 8, `only ${colours} colours are on the canvas`);
    await shot('grid-light');
    await key('t');
    assert.equal(await browser.evaluate('document.documentElement.dataset.theme'), 'dark');
    await shot('grid-dark');
    await key('t');
  });

  test('the builder narrows the grid and can be turned around', async () => {
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
  });

  test('a click on a cell tells its commit, its result and who may have brought it', async () => {
    await open('table=gold&n=120&q=name=blurs');
    await browser.move(700, 300);
    await browser.until(`!document.querySelector('#tip').hidden`);
    await browser.click(700, 200);
    await browser.until(`document.querySelector('#detail .strip') !== null`);
    const told = await text('#detail');
    assert.match(told, /blurs/);
    assert.match(told, /COMMIT @/i);
    assert.match(told, /HISTORY/i);
    await shot('detail');
    await browser.click(900, 120);
    await browser.until(`/changed/i.test(document.querySelector('#detail').innerText)`);
    await shot('commit');
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
    await browser.evaluate(`document.querySelector('.card').click()`);
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
    await shot('numbers');
  });

  test('names from results are shown and not obeyed', async () => {
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
    console.log(`${traces} traces x 256 commits: asked for, received and painted in ${painted} ms`);
    assert.match(await text('#summary'), /1,008 traces × 256 commits/);
    await browser.evaluate(`document.querySelector('#scroller').scrollTop = 1e9`);
    await shot('large');
    const drawn = await browser.evaluate(`(() => {
      const begun = performance.now();
      const scroller = document.querySelector('#scroller');
      for (let at = 0; at < 20; at++) { scroller.scrollTop = at * 700; scroller.dispatchEvent(new Event('scroll')); }
      return performance.now() - begun;
    })()`);
    assert.ok(Number.isFinite(drawn));
  });

  test('ten thousand traces are scrolled through, and only what is seen is drawn', async () => {
    const { traces } = await fill(server, 'huge', HUGE);
    assert.ok(traces >= 10_000);
    await open('table=huge&n=32');
    const painted = Number(await browser.evaluate('document.body.dataset.paintedMs'));
    console.log(`${traces} traces x 32 commits: asked for, received and painted in ${painted} ms`);
    assert.match(await text('#summary'), new RegExp(`${traces.toLocaleString('en-US')} traces .*× 32 commits`));
    const boxes = await browser.evaluate('document.querySelectorAll("main *").length');
    assert.ok(boxes < 100, `${boxes} elements for a grid on one canvas`);
    await key('ArrowDown');
    for (let page = 0; page < 3; page++) await key('PageDown');
    const scrolled = await browser.evaluate(`document.querySelector('#scroller').scrollTop`);
    assert.ok(scrolled > 1000, `the selection was not followed: ${scrolled}`);
    await browser.evaluate(`document.querySelector('#scroller').scrollTop = 1e9`);
    await shot('huge');
    assert.equal(await browser.evaluate(`document.querySelector('#canvas').height <= 900`), true);
  });

  test('options of a trace are told beside its cell', async () => {
    await open('table=gold&n=120&kind=numbers&q=name=blurs');
    await browser.move(800, 220);
    await browser.until(`/unit ns/.test(document.querySelector('#tip').innerText)`);
  });

  test('nothing went wrong in the page meanwhile', () => {
    assert.deepEqual(browser.problems, []);
  });
});
