'use strict';
// A server process for a test file: started on free ports, asked for its
// address by the line that says it is ready.

const {spawn} = require('node:child_process');
const readline = require('node:readline');

async function startServer() {
  const flags = ['serve', '--ephemeral', '--grpc-port', '0', '--http-port', '0', '--metastore-port', 'off'];
  const child = spawn(process.env.STELE_BIN, flags, {stdio: ['ignore', 'pipe', 'inherit']});
  const ended = new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', code => resolve(code));
  });
  const lines = readline.createInterface({input: child.stdout});
  const ready = await Promise.race([
    new Promise(resolve => lines.once('line', line => resolve(JSON.parse(line)))),
    ended.then(code => Promise.reject(new Error(`the server ended with ${code}`))),
  ]);
  return {
    address: ready.grpc,
    // The exit code of a server that was asked to end.
    stop: () => {
      child.kill('SIGTERM');
      return ended;
    },
  };
}

module.exports = {startServer};
