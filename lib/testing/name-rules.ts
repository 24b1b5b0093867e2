import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { granted } from './grant-rules.js';
import { rolesWithout, rule, ruleOf, ruleUnder, type Rule } from './stage.js';
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
    assert.equal(await promiseOf(client.store.inspect({ name: stage.name })), null);
  }),

  ruleOf('forceRelease', 'frees a name by force and returns its owner', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    assert.equal(await two.forceRelease(stage.name), owner);
    assert.equal(await two.forceRelease(stage.name), null);
    assert.equal((await one.renew(stage.name, owner)).status, 'not-owner');
    await granted(two, stage.name, two.ticket());
  }),

  ruleOf('list', 'lists the names that have an owner, page by page', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const names = Array.from({ length: 30 }, (_, index) => `${stage.name}:list:${index}`);
    for (const name of names) await granted(one, name, one.ticket());
    const freed = one.ticket();
    await granted(one, `${stage.name}:list:freed`, freed);
    await one.release(`${stage.name}:list:freed`, freed);
    const found = new Set<string>();
    let cursor = '';
    do {
      const page = await promiseOf(two.store.list!({ pattern: `${stage.name}:list:*`, cursor, limit: 7 }));
      for (const name of page.names) found.add(name);
      cursor = page.cursor;
    } while (cursor !== '');
    assert.deepEqual([...found].toSorted(), names.toSorted());
  }),

  ruleOf('keep', 'keeps a name for its minimum hold after the holder has ended', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    const rest = 400;
    const sentAt = performance.now();
    assert.equal((await one.keep(stage.name, owner, rest)).status, 'released');
    for (;;) {
      const ticket = two.ticket();
      const answer = await two.acquire(stage.name, ticket);
      if (answer.status === 'granted') break;
      assert(answer.remaining <= rest, `${answer.remaining} ms are left of ${rest}`);
      await sleep(10);
    }
    const after = performance.now() - sentAt;
    assert(after >= rest - 2, `another ticket got the name after ${after} ms of a minimum hold with ${rest} ms left`);
    assert.notEqual((await one.keep(stage.name, owner, rest)).status, 'released');
  }),

  ruleOf('keep', 'never lengthens a lease by a minimum hold', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    await granted(one, stage.name, owner, one.short);
    assert.equal((await one.keep(stage.name, owner, one.long)).status, 'released');
    const answer = await two.acquire(stage.name, two.ticket());
    const left = answer.status === 'busy' ? answer.remaining : 0;
    assert(left <= one.short, `${left} ms are left of a lease of ${one.short}`);
    await stage.until('the lease ends', async () => (await two.ownerOf(stage.name)) === undefined);
  }),

  ruleOf('label', 'shows the label of the process that owns a name', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    await granted(client, stage.name, ticket);
    await client.store.label!('shop on host:7', 60_000);
    assert.equal((await promiseOf(client.store.inspect({ name: stage.name })))?.label, 'shop on host:7');
    await client.store.label!('', 0);
    assert.equal((await promiseOf(client.store.inspect({ name: stage.name })))?.label, undefined);
  }),

  rule('answers a ping, and starts without an error', async (stage) => {
    const { store, backend, reported } = await stage.client();
    await store.start?.();
    await backend.ping();
    for (const message of reported) assert(!message.includes('\n'), message);
  }),

  ruleUnder(['pause'], 'answers no ping while the store does not answer', async (stage, faults) => {
    const backend = await stage.backend();
    await backend.ping();
    const resume = await faults.pause();
    let answered = false;
    try {
      backend.ping().then(
        () => (answered = true),
        () => {},
      );
      await sleep(100);
      assert(!answered, 'a ping was answered while the store was paused: it must ask the store');
    } finally {
      await resume();
    }
    await stage.until('a ping is answered', () =>
      backend.ping().then(
        () => true,
        () => false,
      ),
    );
  }),

  rule('has every role but those that its world names in `without`', async (stage) => {
    const client = await stage.client();
    assert.deepEqual(rolesWithout(client), stage.without.toSorted());
  }),

  rule('has the service refuse what needs a role that it leaves out', async (stage) => {
    const { store } = await stage.client();
    const locks = await stage.locks();
    const refusal = { code: 'LOCK_CONFIG' };
    if (!store.forceRelease) await assert.rejects(locks.forceRelease(stage.name), refusal);
    if (!store.list) await assert.rejects(locks.list(), refusal);
    if (!store.keep) await assert.rejects(locks.acquire(stage.name, { minHold: 100 }), refusal);
    const read = { ...refusal, message: /redis\(\)/ };
    if (!store.downgrade) await assert.rejects(locks.acquire(stage.name, { mode: 'read' }), read);
  }),
];
