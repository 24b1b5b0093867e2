import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import type { AcquireAnswer, Granted, Pending, RenewAnswer, TokenRange } from '../contracts/lock-backend.js';
import { rule, ruleOf, type Rule, type Stage } from './stage.js';
import { promiseOf, type StoreClient } from './store-client.js';

/** What `acquire`, `renew` and `release` answer. */
export const GRANT_RULES: readonly Rule[] = [
  rule('grants a free name, with a token and the lease that is left', async (stage) => {
    const client = await stage.client();
    const { tokens, remaining } = await granted(client, stage.name, client.ticket());
    const { first, count } = tokens;
    assert(Number.isSafeInteger(first) && first > 0, `token ${first}: it must be a safe integer above 0`);
    assert(count >= 1, `${count} tokens: every grant has at least one`);
    assert(remaining > 0 && remaining <= client.long, `remaining ${remaining} of ${client.long}`);
  }),

  rule('keeps its answer for a caller that asks later, and for several', async (stage) => {
    const client = await stage.client();
    const { store } = client;
    const ticket = client.ticket();
    /** Waits for the answers to later requests. */
    const later = async () => {
      for (let each = 0; each < 3; each++) await client.ownerOf(stage.name);
    };
    const request = { name: stage.name, ticket };
    const acquired = store.acquire({ ...request, ttl: client.long });
    await later();
    assert.equal((await promiseOf(acquired)).status, 'granted');
    const [renewed] = store.renew([{ ...request, ttl: client.long }]);
    await later();
    assert.equal((await promiseOf(renewed as Pending<RenewAnswer>)).status, 'renewed');
    const released = store.release(request);
    await later();
    const answers = await Promise.all([promiseOf(released), promiseOf(released)]);
    assert.deepEqual(
      answers.map(({ status }) => status),
      ['released', 'released'],
    );
    if (!store.queue) return;
    const [name, again] = [stage.name, client.ticket()];
    const queued = store.queue.enqueue({ name, ticket: again, ttl: client.long });
    await later();
    assert.equal((await promiseOf(queued)).status, 'granted');
    await client.release(name, again);
  }),

  rule('refuses a name that another ticket owns, and says which', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    await granted(one, stage.name, owner);
    const answer = await two.acquire(stage.name, two.ticket());
    assert(answer.status === 'busy', `another ticket owns the name, and the answer is ${shown(answer)}`);
    assert.equal(answer.owner, owner);
    assert(answer.remaining > 0, `remaining ${answer.remaining} of a lease that has not ended`);
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
    const { tokens } = await granted(client, stage.name, ticket);
    const { first } = (await granted(client, stage.name, ticket)).tokens;
    assert(first >= tokens.first, `token ${first} after ${tokens.first}: those of a ticket that asks again never fall`);
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
    assert(answer.status === 'renewed' && answer.remaining > 0, `a renewal is due, and the answer is ${shown(answer)}`);
    const least = one.backend.traits.lease === 'ttl' ? one.long - 1_000 : 0;
    assert(answer.remaining >= least, `remaining ${answer.remaining} after a renewal for ${one.long}`);
    assert.equal((await two.renew(stage.name, two.ticket())).status, 'not-owner');
    await one.release(stage.name, owner);
    assert.equal((await one.renew(stage.name, owner)).status, 'not-owner');
  }),

  rule('renews each of several names by itself, in one call', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const names = ['a', 'b', 'c', 'd'].map((end) => `${stage.name}:${end}`);
    const [mine, other] = [one.ticket(), two.ticket()];
    for (const name of names.slice(1, 3)) await granted(one, name, mine);
    await granted(two, names[3]!, other);
    const answers = one.store.renew(names.map((name) => ({ name, ticket: mine, ttl: one.long })));
    assert.deepEqual(
      (await Promise.all(answers.map((answer) => promiseOf(answer)))).map(({ status }) => status),
      ['not-owner', 'renewed', 'renewed', 'not-owner'],
    );
    assert.equal(await two.ownerOf(names[3]!), other);
  }),

  rule('never shortens a lease by a renewal', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    const { remaining } = await granted(client, stage.name, ticket);
    const answer = await client.renew(stage.name, ticket, 1);
    const left = answer.status === 'renewed' ? answer.remaining : 0;
    assert(
      left > remaining / 2,
      `the lease was ${remaining} ms, and the answer to a renewal for 1 ms is ${shown(answer)}`,
    );
  }),

  ruleOf('ttl', 'admits nobody before the lease that it stated has ended, and the next one after it', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    const sentAt = performance.now();
    const { tokens, remaining } = await granted(one, stage.name, owner, one.short);
    const next = await grantAfter({ owner, sentAt, remaining }, stage, two);
    assertAbove(next.tokens.first, lastOf(tokens));
    assert.equal((await one.renew(stage.name, owner)).status, 'not-owner');
    assert.equal((await one.release(stage.name, owner)).status, 'taken');
    assert.equal(await two.ownerOf(stage.name), next.ticket);
  }),

  ruleOf('ttl', 'states no more lease than is left to an owner that asks again', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    await statesWhatIsLeft(stage, one, two, () => one.ticket());
  }),

  ruleOf('ttl', 'does nothing for a ticket whose lease has ended, although nobody took the name', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    await granted(client, stage.name, ticket, client.short);
    await stage.until('the lease ends', async () => (await client.ownerOf(stage.name)) === undefined);
    assert.equal((await client.renew(stage.name, ticket)).status, 'not-owner');
    assert.equal(await client.mint(stage.name, ticket), null);
    assert.equal((await client.release(stage.name, ticket)).status, 'gone');
    assert.equal(await client.ownerOf(stage.name), undefined);
  }),

  ruleOf('acquireSeveral', 'takes several names, all or none, each then renewed and released alone', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const [a, b, c] = [`{${stage.name}}:a`, `{${stage.name}}:b`, `{${stage.name}}:c`];
    const [owner, other] = [one.ticket(), two.ticket()];
    await granted(one, [a, b], owner);
    const answer = await two.acquire([b, c], other);
    assert(answer.status === 'busy', `another ticket owns one of the names, and the answer is ${shown(answer)}`);
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

/** What an assertion says that it received. */
export function shown(received: unknown): string {
  return inspect(received, { breakLength: Infinity });
}

/** Takes what must be free for the ticket. */
export async function granted(
  client: StoreClient,
  name: string | readonly string[],
  ticket: string,
  ttl?: number,
  leastToken?: number,
): Promise<Granted> {
  const answer = await client.acquire(name, ticket, ttl, leastToken);
  assert(answer.status === 'granted', `a grant is due, and the answer is ${shown(answer)}`);
  return answer;
}

/** The last token of a range. */
export function lastOf({ first, count }: TokenRange): number {
  return first + count - 1;
}

/** Fails where a token is not above `last`. */
export function assertAbove(token: number | undefined, last: number, why = 'every grant has higher tokens'): void {
  assert(token !== undefined && token > last, `token ${token} after ${last}: ${why}`);
}

/** Fails where tokens are below the least that was asked for. */
export function assertAtLeast(tokens: TokenRange | null | undefined, least: number): asserts tokens is TokenRange {
  assert(tokens && tokens.first >= least, `token ${tokens?.first}, and at least ${least} was asked for`);
}

/** What a ticket was answered to a request that was sent at `sentAt`. */
interface StatedLease {
  readonly owner: string;
  readonly sentAt: number;
  readonly remaining: number;
}

/** How often a lease is measured at most where a slow machine shows nothing. */
const MOST_MEASURED = 5;

/**
 * Asks again after half of a lease, and fails where another ticket gets the name before the lease has ended that is
 * stated then.
 */
export async function statesWhatIsLeft(
  stage: Stage,
  one: StoreClient,
  two: StoreClient,
  ticketOf: () => string,
  owner?: string,
): Promise<void> {
  for (let measured = 0; measured < MOST_MEASURED; measured++) {
    const ticket = ticketOf();
    const began = performance.now();
    await granted(one, stage.name, ticket, one.short);
    await sleep(one.short / 2);
    const sentAt = performance.now();
    const { remaining } = await granted(one, stage.name, ticket, one.short);
    const elapsed = performance.now() - began;
    const next = await grantAfter({ owner: owner ?? ticket, sentAt, remaining }, stage, two);
    // Otherwise the lease was over before it asked again, or for long nobody asked whether it was.
    if (elapsed < one.short && next.unseen < one.short / 4) return;
    await two.release(stage.name, next.ticket);
  }
}

/**
 * Waits until another ticket gets the name of the case, and fails where that is before the stated lease has ended.
 * `unseen`: how long (ms) before the grant the name was seen busy last.
 */
export async function grantAfter(
  { owner, sentAt, remaining }: StatedLease,
  { name }: Stage,
  next: StoreClient,
): Promise<Granted & { readonly ticket: string; readonly unseen: number }> {
  const ticket = next.ticket();
  let busyAt = sentAt;
  for (;;) {
    const askedAt = performance.now();
    const answer: AcquireAnswer = await next.acquire(name, ticket);
    const after = performance.now() - sentAt;
    if (answer.status === 'granted') {
      assert(
        after >= remaining - 2,
        `another ticket got the name after ${after} ms, and the lease was ${remaining} ms`,
      );
      return { ...answer, ticket, unseen: sentAt + after - busyAt };
    }
    assert.equal(answer.owner, owner);
    busyAt = askedAt;
    await sleep(Math.min(20, answer.remaining));
  }
}
