import assert from 'node:assert/strict';
import { granted, shown, statesWhatIsLeft } from './grant-rules.js';
import { ruleOf, type Rule, type Stage } from './stage.js';
import { promiseOf, type StoreClient } from './store-client.js';

/** Tickets that read. */
export const READ_RULES: readonly Rule[] = [
  readRule('grants a name to many readers, and to no writer beside them', async (stage, one, two) => {
    const [first, second] = [one.readTicket(), two.readTicket()];
    await granted(one, stage.name, first);
    await granted(two, stage.name, second);
    assert.equal((await promiseOf(one.store.inspect({ name: stage.name })))?.readers, 2);
    assert.equal((await two.acquire(stage.name, two.ticket())).status, 'busy');
    assert.equal((await one.release(stage.name, first)).status, 'released');
    assert.equal((await two.acquire(stage.name, two.ticket())).status, 'busy');
    assert.equal((await two.release(stage.name, second)).status, 'released');
    assert.notEqual((await two.release(stage.name, second)).status, 'released');
    const writer = two.ticket();
    await granted(two, stage.name, writer);
    assert.equal((await one.acquire(stage.name, one.readTicket())).status, 'busy');
    assert.equal((await promiseOf(one.store.inspect({ name: stage.name })))?.readers, undefined);
  }),

  readRule('grants a reader that asks again what is left of its lease, and counts it once', async (stage, one) => {
    const ticket = one.readTicket();
    await granted(one, stage.name, ticket);
    await granted(one, stage.name, ticket);
    assert.equal((await promiseOf(one.store.inspect({ name: stage.name })))?.readers, 1);
  }),

  readRule('states no more lease than is left to a reader that asks again', async (stage, one, two) => {
    await statesWhatIsLeft(stage, one, two, () => one.readTicket(), 'readers');
  }),

  readRule('lets readers wait behind a writer that waits, until it falls silent', async (stage, one, two) => {
    const [reader, writer] = [one.readTicket(), two.ticket()];
    await granted(one, stage.name, reader);
    let behind = false;
    // On a slow machine, the writer may count as silent before the next reader asks.
    for (let tries = 0; tries < 5 && !behind; tries++) {
      assert.equal((await two.waitFor(stage.name, writer)).status, 'busy');
      const next = one.readTicket();
      behind = (await one.acquire(stage.name, next)).status === 'busy';
      if (!behind) await one.release(stage.name, next);
    }
    assert(behind, 'a ticket got in as a reader while a writer waited');
    await stage.until('a reader gets in after a writer that asks no more', async () => {
      return (await one.acquire(stage.name, one.readTicket())).status === 'granted';
    });
  }),

  readRule('ends the lease of each reader by itself', async (stage, one, two) => {
    const [short, long] = [one.readTicket(), two.readTicket()];
    assert.equal((await one.acquire(stage.name, short, one.short)).status, 'granted');
    await granted(two, stage.name, long);
    await stage.until('the short lease ends', async () => {
      return (await promiseOf(two.store.inspect({ name: stage.name })))?.readers === 1;
    });
    assert.equal((await one.renew(stage.name, short)).status, 'not-owner');
    assert.equal((await two.renew(stage.name, long)).status, 'renewed');
    assert.equal((await two.acquire(stage.name, two.ticket())).status, 'busy');
  }),

  readRule('shortens the wait of a writer when the longest reader ends first', async (stage, one, two) => {
    const [short, long] = [one.readTicket(), two.readTicket()];
    assert.equal((await one.acquire(stage.name, short, one.short)).status, 'granted');
    await granted(two, stage.name, long);
    await two.release(stage.name, long);
    const answer = await two.acquire(stage.name, two.ticket());
    const left = answer.status === 'busy' ? answer.remaining : Infinity;
    assert(
      left <= one.short,
      `the longest lease that is left is of ${one.short} ms, and the answer is ${shown(answer)}`,
    );
    await stage.until('a writer gets in', async () => {
      return (await two.acquire(stage.name, two.ticket())).status === 'granted';
    });
  }),

  readRule('gives readers tokens above those of earlier writers and below those of later ones', async (stage, one) => {
    const tokens: number[] = [];
    for (const ticket of [one.ticket(), one.readTicket(), one.ticket(), one.readTicket(), one.ticket()]) {
      const answer = await granted(one, stage.name, ticket);
      const more = await one.mint(stage.name, ticket, answer.tokens.first + 1);
      assert(more, 'the ticket has the name');
      tokens.push(answer.tokens.first, more.first + more.count - 1);
      await one.release(stage.name, ticket);
    }
    assert.deepEqual(
      tokens,
      tokens.toSorted((a, b) => a - b),
    );
    assert.equal(new Set(tokens).size, tokens.length);
  }),

  readRule('takes the name from all readers by force', async (stage, one, two) => {
    const tickets = [one.readTicket(), two.readTicket()];
    await granted(one, stage.name, tickets[0]!);
    await granted(two, stage.name, tickets[1]!);
    const owners = await promiseOf(two.store.forceRelease!({ name: stage.name }));
    assert.deepEqual(new Set([owners].flat()), new Set(tickets));
    assert.equal((await one.renew(stage.name, tickets[0]!)).status, 'not-owner');
    await granted(two, stage.name, two.ticket());
  }),

  readRule('makes an owner a reader under its ticket and lease, and nobody else', async (stage, one, two) => {
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    const request = { name: stage.name, ticket: owner, ttl: one.long };
    const downgrade = (ticket = owner) => promiseOf(one.store.downgrade!({ ...request, ticket }));
    await downgrade(two.ticket());
    assert.equal((await two.acquire(stage.name, two.readTicket())).status, 'busy');
    await downgrade();
    await downgrade();
    const reader = two.readTicket();
    await granted(two, stage.name, reader);
    assert.equal((await promiseOf(one.store.inspect({ name: stage.name })))?.readers, 2);
    assert.equal((await one.renew(stage.name, owner)).status, 'renewed');
    assert.equal((await two.acquire(stage.name, two.ticket())).status, 'busy');
    assert.equal((await one.release(stage.name, owner)).status, 'released');
    await two.release(stage.name, reader);
    const writer = two.ticket();
    await granted(two, stage.name, writer);
    await downgrade();
    assert.equal(await one.ownerOf(stage.name), writer);
  }),

  readRule('gives a reader that was the owner the lease that it asks for', async (stage, one) => {
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    await promiseOf(one.store.downgrade!({ name: stage.name, ticket: owner, ttl: one.short }));
    const state = await promiseOf(one.store.inspect({ name: stage.name }));
    assert.equal(state?.readers, 1);
    assert(state.ttl <= one.short, `${state.ttl}`);
  }),
];

function readRule(name: string, body: (stage: Stage, one: StoreClient, two: StoreClient) => Promise<void>): Rule {
  return ruleOf('downgrade', name, async (stage) => body(stage, await stage.client(), await stage.client()));
}
