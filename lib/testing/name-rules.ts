import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { granted } from './grant-rules.js';
import { rule, type Rule } from './stage.js';
import { promiseOf } from './store-client.js';

/** Endings that make a different name of each, whatever the store makes of case, blanks and separators. */
const ENDINGS = [
  '',
  'a',
  'A',
  'a ',
  ' a',
  'a\t',
  'a\u0000',
  'a\u0000b',
  'a/b',
  'a%2Fb',
  'a//b',
  '/',
  '..',
  '.',
  'á',
  'a\u0301',
  '😀',
  '😁',
  '{a}',
  '}',
  "a'b",
  'a"b',
  'a\\b',
  'a:b',
  'a*',
  'a?',
  'a_',
  'a\nb',
  'ß',
  'ss',
  'x'.repeat(1_000),
  `${'x'.repeat(999)}y`,
];

/** Which names are the same. */
export const NAME_RULES: readonly Rule[] = [
  rule('keeps names apart that differ in case, blanks, separators or beyond ASCII', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const held = ENDINGS.map((ending) => ({ name: `${stage.name}-${ending}`, ticket: one.ticket() }));
    for (const { name, ticket } of held) await granted(one, name, ticket);
    for (const { name, ticket } of held) {
      assert.equal(await two.ownerOf(name), ticket, JSON.stringify(name));
      assert.equal((await two.acquire(name, two.ticket())).status, 'busy', JSON.stringify(name));
    }
    for (const { name, ticket } of held) assert.equal((await one.release(name, ticket)).status, 'released', name);
    for (const { name } of held) assert.equal(await two.ownerOf(name), undefined, JSON.stringify(name));
  }),

  rule('keeps the names of different prefixes apart', async (stage) => {
    const clients = [await stage.client('shop'), await stage.client('shop:a'), await stage.client()];
    const names = [`a:${stage.name}`, stage.name, `shop:a:${stage.name}`];
    for (const [index, client] of clients.entries()) await granted(client, names[index]!, client.ticket());
    for (const client of clients) await granted(client, `${stage.name}:same`, client.ticket());
  }),
];

/** What a backend may leave out; the options that need it are then refused. */
export const ROLE_RULES: readonly Rule[] = [
  rule('reports no owner for a free name', async (stage) => {
    const client = await stage.client();
    assert.equal(await promiseOf(client.backend.inspect({ name: stage.name })), null);
  }),

  rule('frees a name by force and returns its owner, or the service refuses', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    if (!two.backend.forceRelease) {
      const locks = await stage.locks();
      await assert.rejects(locks.forceRelease(stage.name), { code: 'LOCK_CONFIG' });
      return;
    }
    assert.equal(await promiseOf(two.backend.forceRelease({ name: stage.name })), owner);
    assert.equal(await promiseOf(two.backend.forceRelease({ name: stage.name })), null);
    assert.equal((await one.renew(stage.name, owner)).status, 'not-owner');
    await granted(two, stage.name, two.ticket());
  }),

  rule('lists the names that have an owner, page by page, or the service refuses', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const { backend } = two;
    if (!backend.list) {
      const locks = await stage.locks();
      await assert.rejects(locks.list(), { code: 'LOCK_CONFIG' });
      return;
    }
    const names = Array.from({ length: 30 }, (_, index) => `${stage.name}:list:${index}`);
    for (const name of names) await granted(one, name, one.ticket());
    const freed = one.ticket();
    await granted(one, `${stage.name}:list:freed`, freed);
    await one.release(`${stage.name}:list:freed`, freed);
    const found = new Set<string>();
    let cursor = '';
    do {
      const page = await promiseOf(backend.list({ pattern: `${stage.name}:list:*`, cursor, limit: 7 }));
      for (const name of page.names) found.add(name);
      cursor = page.cursor;
    } while (cursor !== '');
    assert.deepEqual([...found].toSorted(), names.toSorted());
  }),

  rule('keeps a name for its minimum hold after the holder has ended, or the service refuses', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const { backend } = one;
    if (!backend.keep) {
      const locks = await stage.locks();
      await assert.rejects(locks.acquire(stage.name, { minHold: 100 }), { code: 'LOCK_CONFIG' });
      return;
    }
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    const rest = 400;
    const sentAt = performance.now();
    const kept = await promiseOf(backend.keep({ name: stage.name, ticket: owner, rest }));
    assert.equal(kept.status, 'released');
    for (;;) {
      const ticket = two.ticket();
      const answer = await two.acquire(stage.name, ticket);
      if (answer.status === 'granted') break;
      assert(answer.remaining <= rest, `${answer.remaining} ms are left of ${rest}`);
      await sleep(10);
    }
    assert(performance.now() - sentAt >= rest - 2);
    assert.notEqual((await promiseOf(backend.keep({ name: stage.name, ticket: owner, rest }))).status, 'released');
  }),

  rule('shows the label of the process that owns a name, if it keeps labels', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    await granted(client, stage.name, ticket);
    const { process } = client;
    if (!client.backend.label) return;
    await client.backend.label({ process, label: 'shop on host:7', ttl: 60_000 });
    assert.equal((await promiseOf(client.backend.inspect({ name: stage.name })))?.label, 'shop on host:7');
    await client.backend.label({ process, label: '', ttl: 0 });
    assert.equal((await promiseOf(client.backend.inspect({ name: stage.name })))?.label, undefined);
  }),

  rule('answers a ping, and starts without an error', async (stage) => {
    const backend = await stage.backend();
    const reported: string[] = [];
    await backend.start?.({ commandTimeout: 5_000, report: ({ message }) => reported.push(message) });
    await backend.ping();
    for (const message of reported) assert(!message.includes('\n'), message);
  }),
];
