'use strict';
// A server process for a test file, on free ports. The readiness line that it
// prints contains its address.

const {spawn} = require('node:child_process');
const readline = require('node:readline');

async function startServer() {
  const flags = ['serve', '--ephemeral', '--grpc-port', '0', '--http-port', '0', '--metastore-port', 'off'];
  const child = spawn(process.env.STELE_BIN, flags, {stdio: ['ignore', 'pipe', 'inherit']});
  const exited = new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', code => resolve(code));
  });
  const lines = readline.createInterface({input: child.stdout});
  const ready = await Promise.race([
    new Promise(resolve => lines.once('line', line => resolve(JSON.parse(line)))),
    exited.then(code => Promise.reject(new Error(`the server exited with ${code}`))),
  ]);
  return {
    address: ready.grpc,
    // Sends SIGTERM and resolves to the exit code.
    stop: () => {
      child.kill('SIGTERM');
      return exited;
    },
  };
}

module.exports = {startServer};
