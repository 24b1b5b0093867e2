import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pending, RenewAnswer } from '../contracts/lock-backend.js';
import { rule, type Rule } from './stage.js';
import { promiseOf, type StoreClient } from './store-client.js';

/** What `acquire`, `renew` and `release` answer. */
export const GRANT_RULES: readonly Rule[] = [
  rule('grants a free name, with a token and the lease that is left', async (stage) => {
    const client = await stage.client();
    const answer = await client.acquire(stage.name, client.ticket());
    assert(answer.status === 'granted');
    assert(Number.isSafeInteger(answer.tokens.first) && answer.tokens.first > 0, `token ${answer.tokens.first}`);
    assert(answer.tokens.count >= 1);
    assert(answer.remaining > 0 && answer.remaining <= client.long, `remaining ${answer.remaining} of ${client.long}`);
  }),

  rule('keeps its answer for a caller that asks later, and for several', async (stage) => {
    const client = await stage.client();
    const { backend } = client;
    const ticket = client.ticket();
    /** Waits for the answers to later requests. */
    const later = async () => {
      for (let each = 0; each < 3; each++) await client.ownerOf(stage.name);
    };
    const request = { name: stage.name, ticket };
    const acquired = backend.acquire({ ...request, ttl: client.long });
    await later();
    assert.equal((await promiseOf(acquired)).status, 'granted');
    const [renewed] = backend.renew([{ ...request, ttl: client.long }]);
    await later();
    assert.equal((await promiseOf(renewed as Pending<RenewAnswer>)).status, 'renewed');
    const released = backend.release(request);
    await later();
    const answers = await Promise.all([promiseOf(released), promiseOf(released)]);
    assert.deepEqual(
      answers.map(({ status }) => status),
      ['released', 'released'],
    );
    if (!backend.queue) return;
    const [name, again] = [stage.name, client.ticket()];
    const queued = backend.queue.enqueue({ name, ticket: again, ttl: client.long });
    await later();
    assert.equal((await promiseOf(queued)).status, 'granted');
    await client.release(name, again);
  }),

  rule('refuses a name that another ticket owns, and says which', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    const answer = await two.acquire(stage.name, two.ticket());
    assert(answer.status === 'busy');
    assert.equal(answer.owner, owner);
    assert(answer.remaining > 0);
    assert.equal(await two.ownerOf(stage.name), owner);
  }),

  rule('refuses another ticket of the same process, too', async (stage) => {
    const client = await stage.client();
    await granted(client, stage.name, client.ticket());
    assert.equal((await client.acquire(stage.name, client.ticket())).status, 'busy');
  }),

  rule('grants a name to one ticket of many that ask at once', async (stage) => {
    const clients = [await stage.client(), await stage.client()];
    for (let round = 0; round < 10; round++) {
      const name = `${stage.name}:${round}`;
      const asked = clients.flatMap((client) =>
        Array.from({ length: 10 }, () => client.acquire(name, client.ticket())),
      );
      const answers = await Promise.all(asked);
      assert.equal(answers.filter(({ status }) => status === 'granted').length, 1);
    }
  }),

  rule('grants a name to its owner again when the request is sent twice', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    const [first, second] = [await client.acquire(stage.name, ticket), await client.acquire(stage.name, ticket)];
    assert(first.status === 'granted' && second.status === 'granted');
    assert(second.tokens.first >= first.tokens.first);
    assert.equal((await client.release(stage.name, ticket)).status, 'released');
    assert.equal(await client.ownerOf(stage.name), undefined);
  }),

  rule('frees a name only by the release of its owner', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const [owner, other] = [one.ticket(), two.ticket()];
    await granted(one, stage.name, owner);
    assert.equal((await two.release(stage.name, other)).status, 'taken');
    assert.equal(await two.ownerOf(stage.name), owner);
    assert.equal((await one.release(stage.name, owner)).status, 'released');
    await granted(two, stage.name, other);
  }),

  rule('answers "gone" to a second release, which frees nothing of the next owner', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const [first, second] = [one.ticket(), two.ticket()];
    await granted(one, stage.name, first);
    await one.release(stage.name, first);
    assert.equal((await one.release(stage.name, first)).status, 'gone');
    await granted(two, stage.name, second);
    assert.notEqual((await one.release(stage.name, first)).status, 'released');
    assert.equal(await one.ownerOf(stage.name), second);
  }),

  rule('is not harmed by a release that overtakes its acquire', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const early = one.ticket();
    assert.equal((await one.release(stage.name, early)).status, 'gone');
    await granted(two, stage.name, two.ticket());
    assert.equal((await one.release(stage.name, early)).status, 'taken');
  }),

  rule('renews the lease of the owner, and of nobody else', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    const answer = await one.renew(stage.name, owner);
    assert(answer.status === 'renewed' && answer.remaining > 0);
    if (one.backend.traits.lease === 'ttl') assert(answer.remaining >= one.long - 1_000, `${answer.remaining}`);
    assert.equal((await two.renew(stage.name, two.ticket())).status, 'not-owner');
    await one.release(stage.name, owner);
    assert.equal((await one.renew(stage.name, owner)).status, 'not-owner');
  }),

  rule('never shortens a lease by a renewal', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    const answer = await client.acquire(stage.name, ticket);
    assert(answer.status === 'granted');
    const renewed = await client.renew(stage.name, ticket, 1);
    assert(renewed.status === 'renewed');
    assert(renewed.remaining > answer.remaining / 2, `${renewed.remaining} of ${answer.remaining}`);
  }),

  rule('answers each renewal of a batch by itself', async (stage) => {
    const client = await stage.client();
    const [own, foreign] = [client.ticket(), client.ticket()];
    const names = [`${stage.name}:a`, `${stage.name}:b`, `${stage.name}:c`] as const;
    await granted(client, names[0], own);
    await granted(client, names[1], foreign);
    await granted(client, names[2], own);
    const requests = names.map((name) => ({ name, ticket: own, ttl: client.long }));
    const answers = await Promise.all(client.backend.renew(requests).map(promiseOf));
    assert.deepEqual(
      answers.map(({ status }) => status),
      ['renewed', 'not-owner', 'renewed'],
    );
  }),

  rule('admits nobody before the lease that it stated has ended, and the next one after it', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    const sentAt = performance.now();
    const grant = await one.acquire(stage.name, owner, one.short);
    assert(grant.status === 'granted');
    if (one.backend.traits.lease === 'session') return;
    const others = two.ticket();
    let taken = await two.acquire(stage.name, others);
    while (taken.status === 'busy') {
      assert.equal(taken.owner, owner);
      await sleep(Math.min(20, taken.remaining));
      taken = await two.acquire(stage.name, others);
    }
    const after = performance.now() - sentAt;
    assert(after >= grant.remaining - 2, `another ticket was granted the name after ${after} of ${grant.remaining} ms`);
    assert(taken.tokens.first > grant.tokens.first + grant.tokens.count - 1);
    assert.equal((await one.renew(stage.name, owner)).status, 'not-owner');
    assert.equal((await one.release(stage.name, owner)).status, 'taken');
    assert.equal(await two.ownerOf(stage.name), others);
  }),

  rule('takes several names, all or none, each of which is then renewed and released by itself', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    if (!one.backend.acquireSeveral) return;
    const [a, b, c] = [`{${stage.name}}:a`, `{${stage.name}}:b`, `{${stage.name}}:c`];
    const [owner, other] = [one.ticket(), two.ticket()];
    await granted(one, [a, b], owner);
    const answer = await two.acquire([b, c], other);
    assert(answer.status === 'busy');
    assert.equal(answer.name, b);
    assert.equal(await two.ownerOf(c), undefined);
    for (const name of [a, b]) assert.equal((await one.renew(name, owner)).status, 'renewed');
    assert.equal((await one.release(a, owner)).status, 'released');
    assert.equal((await one.release(a, owner)).status, 'gone');
    assert.equal((await one.renew(a, owner)).status, 'not-owner');
    assert.equal((await one.renew(b, owner)).status, 'renewed');
    assert.equal(await one.ownerOf(b), owner);
    assert.equal((await one.release(b, owner)).status, 'released');
    await granted(two, [b, c], other);
    assert.equal((await two.release(a, other)).status, 'gone');
    for (const name of [b, c]) assert.equal((await two.release(name, other)).status, 'released');
    assert.equal(await two.ownerOf(b), undefined);
  }),

  rule('may be closed twice, even while it owns names', async (stage) => {
    const client = await stage.client();
    await granted(client, stage.name, client.ticket());
    await client.backend.ping();
    await client.backend.close();
    await client.backend.close();
  }),
];

export async function granted(client: StoreClient, name: string | readonly string[], ticket: string): Promise<void> {
  const answer = await client.acquire(name, ticket);
  assert.equal(answer.status, 'granted', JSON.stringify(answer));
}
