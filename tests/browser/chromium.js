// A headless Chromium, controlled through a pipe with the DevTools protocol.

'use strict';

const { spawn } = require('node:child_process');
const { mkdtempSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');

// Longer than any command takes; reached only when Chromium hangs.
const TIMEOUT_MS = 60_000;

class Chromium {
  static async start(width, height) {
    const profile = mkdtempSync(path.join(tmpdir(), 'stele-chromium-'));
    const flags = [
      '--headless=new', '--remote-debugging-pipe', '--no-sandbox', '--disable-gpu',
      '--disable-dev-shm-usage', '--no-first-run', '--hide-scrollbars',
      `--user-data-dir=${profile}`, `--window-size=${width},${height}`, 'about:blank',
    ];
    const command = process.env.CHROMIUM ?? 'chromium';
    const child = spawn(command, flags, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    const browser = new Chromium(child, profile);
    await browser.prepare(width, height).catch(async (error) => {
      await browser.stop();
      throw error;
    });
    return browser;
  }

  async prepare(width, height) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    this.session = sessionId;
    await this.send('Page.enable');
    await this.send('Runtime.enable');
    await this.resize(width, height);
  }

  resize(width, height) {
    return this.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
  }

  constructor(child, profile) {
    Object.assign(this, { child, profile, next: 1, waiting: new Map(), problems: [] });
    let rest = '';
    child.stdio[4].setEncoding('utf8');
    child.stdio[4].on('data', (text) => {
      const parts = (rest + text).split('\0');
      rest = parts.pop();
      parts.forEach((part) => this.take(JSON.parse(part)));
    });
    const ended = () => {
      for (const { reject } of this.waiting.values()) reject(new Error('Chromium has exited'));
      this.waiting.clear();
    };
    child.on('exit', ended);
    child.on('error', (error) => {
      this.problems.push(String(error));
      ended();
    });
  }

  take(message) {
    if (message.id) {
      const { resolve, reject } = this.waiting.get(message.id) ?? {};
      this.waiting.delete(message.id);
      if (message.error) reject?.(new Error(message.error.message));
      else resolve?.(message.result);
    } else if (message.method === 'Runtime.exceptionThrown') {
      const details = message.params.exceptionDetails;
      this.problems.push(details.exception?.description ?? details.text);
    } else if (message.method === 'Runtime.consoleAPICalled' && message.params.type === 'error') {
      this.problems.push(message.params.args.map((arg) => arg.value ?? arg.description).join(' '));
    } else if (message.method === 'Log.entryAdded') {
      this.problems.push(message.params.entry.text);
    }
  }

  send(method, params = {}) {
    const id = this.next++;
    const message = { id, method, params };
    if (this.session) message.sessionId = this.session;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method} timed out`)), TIMEOUT_MS);
      const after = (done) => (value) => {
        clearTimeout(timer);
        done(value);
      };
      this.waiting.set(id, { resolve: after(resolve), reject: after(reject) });
      this.child.stdio[3].write(`${JSON.stringify(message)}\0`);
    });
  }

  open(url) {
    return this.send('Page.navigate', { url });
  }

  // Returns the value of an expression in the page; promises are awaited.
  async evaluate(expression) {
    const params = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', params);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Waits in the page, checking at every frame, until an expression is true.
  until(expression) {
    return this.evaluate(`new Promise((done) => {
      const check = () => { let held = false; try { held = ${expression}; } catch {} held ? done(true) : requestAnimationFrame(check); };
      check();
    })`);
  }

  async key(key, modifiers = 0) {
    const text = key.length === 1 ? key : undefined;
    await this.send('Input.dispatchKeyEvent', { type: 'keyDown', key, text, modifiers });
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', key, modifiers });
  }

  async click(x, y, modifiers = 0) {
    const at = { x, y, button: 'left', clickCount: 1, modifiers };
    await this.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x, y });
    await this.send('Input.dispatchMouseEvent', { type: 'mousePressed', ...at });
    await this.send('Input.dispatchMouseEvent', { type: 'mouseReleased', ...at });
  }

  move(x, y) {
    return this.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x, y });
  }

  async screenshot(file) {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png' });
    const bytes = Buffer.from(data, 'base64');
    if (file) writeFileSync(file, bytes);
    return bytes;
  }

  async stop() {
    const ended = this.child.exitCode !== null || this.child.pid === undefined;
    const exited = ended || new Promise((resolve) => this.child.once('exit', resolve));
    // On Browser.close it first stops its child processes, which write to the profile.
    this.session = undefined;
    const timer = setTimeout(() => this.child.kill('SIGKILL'), 5_000);
    this.send('Browser.close').catch(() => {});
    await exited;
    clearTimeout(timer);
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

module.exports = { Chromium };
