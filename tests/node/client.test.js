'use strict';
// Google's Node client: tables, mutations, streams, filters, increments.

const assert = require('node:assert/strict');
const {after, before, test} = require('node:test');
const {Bigtable} = require('@google-cloud/bigtable');
const {startServer} = require('./server.js');

let server;
let bigtable;
let instance;
let tables = 0;

before(async () => {
  server = await startServer();
  process.env.BIGTABLE_EMULATOR_HOST = server.address;
  bigtable = new Bigtable({projectId: 'p'});
  instance = bigtable.instance('node');
});

after(async () => {
  await bigtable.close();
  assert.equal(await server.stop(), 0);
});

async function newTable(options = {families: ['f', 'g']}) {
  tables += 1;
  const [table] = await instance.createTable(`t${tables}`, options);
  return table;
}

// Rows r0 to r9, each with f:n as its number.
async function tenRows() {
  const table = await newTable();
  const entries = [...Array(10).keys()].map(number => ({
    key: `r${number}`,
    data: {f: {n: {value: number, timestamp: 1000}, s: {value: `s${number}`, timestamp: 1000}}},
  }));
  await table.insert(entries);
  return table;
}

const ids = rows => rows.map(row => row.id);

test('tables are created, found, listed and deleted', async () => {
  const table = await newTable();
  assert.deepEqual(await table.exists(), [true]);
  const [listed] = await instance.getTables();
  assert.ok(listed.some(other => other.id === table.id));
  await assert.rejects(instance.createTable(table.id), {code: 6});
  await table.delete();
  assert.deepEqual(await table.exists(), [false]);
});

test('families store nested gc rules', async () => {
  const rule = {versions: 2, age: {seconds: 86400, nanos: 0}, union: true};
  const table = await newTable({families: [{name: 'f', rule}, 'plain']});
  const [families] = await table.getFamilies();
  assert.deepEqual(families.map(family => family.id).sort(), ['f', 'plain']);
  const f = families.find(family => family.id === 'f');
  assert.equal(f.metadata.gcRule.union.rules.length, 2);
  await table.createFamily('late', {rule: {versions: 1}});
  await table.family('plain').delete();
  const [changed] = await table.getFamilies();
  assert.deepEqual(changed.map(family => family.id).sort(), ['f', 'late']);
});

test('splits are the sampled keys', async () => {
  const table = await newTable({families: ['f'], splits: [Buffer.from('b'), Buffer.from('d')]});
  const [samples] = await table.sampleRowKeys();
  assert.deepEqual(samples.map(sample => sample.key.toString()), ['b', 'd', '']);
});

test('rows are written, read, and deleted', async () => {
  const table = await newTable();
  const row = table.row('alice');
  await row.create({entry: {f: {name: 'Alice', age: 34}, g: {'': 'empty qualifier'}}});
  const [read] = await row.get();
  assert.equal(read.data.f.name[0].value, 'Alice');
  assert.equal(read.data.f.age[0].value, 34);
  assert.equal(read.data.g[''][0].value, 'empty qualifier');
  await row.deleteCells(['f:name']);
  const [fewer] = await row.get();
  assert.deepEqual(Object.keys(fewer.data.f), ['age']);
  await row.delete();
  assert.deepEqual(await row.exists(), [false]);
});

test('ranges, keys, prefixes and limits choose rows', async () => {
  const table = await tenRows();
  const read = async options => ids((await table.getRows(options))[0]);
  assert.equal((await read({})).length, 10);
  assert.deepEqual(await read({start: 'r3', end: 'r5'}), ['r3', 'r4', 'r5']);
  assert.deepEqual(await read({keys: ['r7', 'r1', 'none']}), ['r1', 'r7']);
  assert.deepEqual(await read({prefix: 'r9'}), ['r9']);
  assert.deepEqual(await read({limit: 2}), ['r0', 'r1']);
  const ranges = [{start: 'r8'}, {start: {value: 'r1', inclusive: false}, end: 'r2'}];
  assert.deepEqual(await read({ranges}), ['r2', 'r8', 'r9']);
});

test('filters are applied', async () => {
  const table = await tenRows();
  const read = async filter => (await table.getRows({filter}))[0];
  assert.deepEqual(ids(await read({row: /r[12]/})), ['r1', 'r2']);
  assert.deepEqual(ids(await read({value: 's4'})), ['r4']);
  const [stripped] = await read([{row: 'r1'}, {column: 's'}, {value: {strip: true}}]);
  assert.deepEqual(Object.keys(stripped.data.f), ['s']);
  assert.equal(stripped.data.f.s[0].value, '');
  const [labelled] = await read([{row: 'r1'}, {column: 's'}, {label: 'mark'}]);
  assert.deepEqual(labelled.data.f.s[0].labels, ['mark']);
  const either = {interleave: [{row: 'r1'}, {row: 'r2'}]};
  assert.deepEqual(ids(await read(either)), ['r1', 'r2']);
  const condition = {condition: {test: {value: 's3'}, pass: {all: true}, fail: {all: false}}};
  assert.deepEqual(ids(await read(condition)), ['r3']);
  assert.deepEqual(ids(await read({column: {cellLimit: 1}})).length, 10);
  await assert.rejects(read({row: '('}), {code: 3});
});

test('large values are sent in chunks and reassembled', async () => {
  const table = await newTable();
  const value = Buffer.alloc(5_000_000);
  for (let at = 0; at < value.length; at += 4) value.writeUInt32BE(at, at);
  await table.insert([
    {key: 'large', data: {f: {q: {value, timestamp: 1000}, r: {value: 'after', timestamp: 1000}}}},
    {key: 'next', data: {f: {q: {value: 'small', timestamp: 1000}}}},
  ]);
  const [rows] = await table.getRows({decode: false});
  assert.deepEqual(ids(rows).map(String), ['large', 'next']);
  assert.ok(value.equals(rows[0].data.f.q[0].value));
  assert.equal(rows[0].data.f.r[0].value.toString(), 'after');
});

test('a stream can be ended early', async () => {
  const table = await tenRows();
  const seen = [];
  await new Promise((resolve, reject) => {
    const stream = table.createReadStream();
    stream.on('error', reject);
    stream.on('end', resolve);
    stream.on('data', row => {
      seen.push(row.id);
      if (seen.length === 3) stream.end();
    });
  });
  assert.deepEqual(seen.slice(0, 3), ['r0', 'r1', 'r2']);
  assert.equal((await table.getRows())[0].length, 10);
});

test('bulk writes report which entries failed', async () => {
  const table = await newTable();
  const entry = (key, family) => ({
    method: 'insert', key, data: {[family]: {q: {value: 'v', timestamp: 1000}}},
  });
  const attempt = table.mutate([entry('a', 'f'), entry('b', 'missing'), entry('c', 'f')]);
  await assert.rejects(attempt, error => {
    assert.equal(error.name, 'PartialFailureError');
    assert.deepEqual(error.errors.map(each => each.code), [5]);
    return true;
  });
  assert.deepEqual(ids((await table.getRows())[0]), ['a', 'c']);
});

test('increments and rules are atomic', async () => {
  const table = await newTable();
  const row = table.row('r');
  assert.equal(await increment(row, 5), 5);
  assert.equal(await increment(row, -7), -2);
  const [response] = await row.createRules([
    {column: 'f:s', append: 'a'},
    {column: 'f:s', append: 'b'},
  ]);
  assert.equal(response.row.families[0].columns[0].cells[0].value.toString(), 'ab');
});

async function increment(row, by) {
  const [value] = await row.increment('f:n', by);
  return Number(value);
}

test('a filter decides which mutations are applied', async () => {
  const table = await tenRows();
  const set = name => [
    {method: 'insert', data: {g: {[name]: {value: 'v', timestamp: 1000}}}},
  ];
  const decide = row => row.filter([{value: 's3'}], {onMatch: set('yes'), onNoMatch: set('no')});
  assert.deepEqual((await decide(table.row('r3')))[0], true);
  assert.deepEqual((await decide(table.row('r4')))[0], false);
  const [rows] = await table.getRows({keys: ['r3', 'r4'], filter: {family: 'g'}});
  assert.deepEqual(rows.map(row => Object.keys(row.data.g)), [['yes'], ['no']]);
});

test('rows are dropped by prefix and then all', async () => {
  const table = await tenRows();
  await table.deleteRows('r3');
  assert.equal((await table.getRows())[0].length, 9);
  await table.truncate();
  assert.deepEqual((await table.getRows())[0], []);
});

test('consistency is reached, and an invalid token is rejected', async () => {
  const table = await newTable();
  const [token] = await table.generateConsistencyToken();
  assert.deepEqual(await table.checkConsistency(token), [true]);
  await assert.rejects(table.checkConsistency('bogus'), {code: 3});
  assert.deepEqual(await table.waitForReplication(), [true]);
  const [states] = await table.getReplicationStates();
  assert.deepEqual([...states.keys()], ['node-c1']);
});

test('calls on a missing table fail without retries', async () => {
  const missing = instance.table('never-made');
  await assert.rejects(missing.getRows(), {code: 5});
  await assert.rejects(missing.row('r').save({f: {q: 'v'}}), error => {
    assert.equal(error.code ?? error.errors[0].code, 5);
    return true;
  });
  await assert.rejects(createWithInvalidName(), {code: 3});
});

function createWithInvalidName() {
  return instance.createTable('not a name');
}
