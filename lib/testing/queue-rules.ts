import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { assertAbove, granted, lastOf } from './grant-rules.js';
import { rule, ruleOf, ruleUnder, type Rule, type Stage } from './stage.js';
import { promiseOf, type GrantMessage, type StoreClient } from './store-client.js';

/** The queue at the store; a store without one must refuse `order: 'fifo'`. */
export const QUEUE_RULES: readonly Rule[] = [
  rule('keeps a queue, or the service refuses the order of arrival', async (stage) => {
    const locks = await stage.locks();
    const { queue } = (await stage.client()).store;
    const call = locks.acquire(stage.name, { order: 'fifo' });
    if (queue && !queue.pace) await (await call).release();
    else await assert.rejects(call, { code: 'LOCK_CONFIG' });
  }),

  ruleOf('queue', 'hands a released name to the first waiter, and tells its process', async (stage) => {
    const crew = await crewOf(stage, 3);
    const [holder, second, third] = crew;
    const [a, b, c] = [holder.ticket(), second.ticket(), third.ticket()];
    await granted(holder, stage.name, a);
    assert.equal((await second.enqueue(stage.name, b)).status, 'busy');
    assert.equal((await third.enqueue(stage.name, c)).status, 'busy');
    await ask(stage, [second, b], [third, c]);
    await holder.release(stage.name, a);
    const first = await tellsOf(stage, second, b);
    assert.equal(await holder.ownerOf(stage.name), b);
    await ask(stage, [third, c]);
    await second.release(stage.name, b);
    const next = await tellsOf(stage, third, c);
    assert.equal(await holder.ownerOf(stage.name), c);
    assertAbove(next.tokens.first, lastOf(first.tokens));
  }),

  ruleOf('queue', 'keeps the position of a ticket that is queued twice', async (stage) => {
    const crew = await crewOf(stage, 3);
    const [holder, second, third] = crew;
    const [a, b, c] = [holder.ticket(), second.ticket(), third.ticket()];
    await granted(holder, stage.name, a);
    await second.enqueue(stage.name, b);
    await third.enqueue(stage.name, c);
    await second.enqueue(stage.name, b);
    await ask(stage, [third, c]);
    await holder.release(stage.name, a);
    await grantOf(stage, second, b);
    await ask(stage, [third, c]);
    await second.release(stage.name, b);
    await grantOf(stage, third, c);
    await third.release(stage.name, c);
    assert.equal(await holder.ownerOf(stage.name), undefined);
  }),

  ruleOf('queue', 'passes over a ticket that was given up', async (stage) => {
    const crew = await crewOf(stage, 3);
    const [holder, second, third] = crew;
    const [a, b, c] = [holder.ticket(), second.ticket(), third.ticket()];
    await granted(holder, stage.name, a);
    await second.enqueue(stage.name, b);
    await third.enqueue(stage.name, c);
    await second.release(stage.name, b);
    const beat = await second.beat(stage.name, b);
    assert.equal(beat.status, 'gone');
    await holder.release(stage.name, a);
    await grantOf(stage, third, c);
    assert(!second.isGranted(b));
  }),

  // A session goes on where its process only falls silent: the case of killed processes is theirs.
  ruleOf(['queue', 'ttl'], 'lets the next ticket in after a waiter that has crashed', async (stage) => {
    const crew = await crewOf(stage, 3);
    const [holder, crashed, third] = crew;
    const [a, b, c] = [holder.ticket(), crashed.ticket(), third.ticket()];
    await granted(holder, stage.name, a);
    await crashed.enqueue(stage.name, b, crashed.short);
    await third.enqueue(stage.name, c);
    await ask(stage, [crashed, b], [third, c]);
    await holder.release(stage.name, a);
    await grantOf(stage, third, c);
    assert.equal((await crashed.renew(stage.name, b)).status, 'not-owner');
    assert.equal(await holder.ownerOf(stage.name), c);
  }),

  {
    ...ruleUnder(['cut'], 'says that messages arrive again after every connection was cut', async (stage, faults) => {
      const crew = await crewOf(stage, 2);
      const [holder, other] = crew;
      const isTold = async (): Promise<boolean> => {
        const [a, b] = [holder.ticket(), other.ticket()];
        const name = `${stage.name}:${a}`;
        await holder.acquire(name, a);
        await other.enqueue(name, b);
        await holder.release(name, a);
        await sleep(100);
        return other.isGranted(b);
      };
      await stage.until('messages arrive', isTold);
      other.reconnections = 0;
      await faults.cut();
      await stage.until('the backend says that messages arrive again', () => other.reconnections > 0);
      await stage.until('messages arrive again', () => isTold().catch(() => false));
    }),
    roles: ['queue'],
  },

  ruleOf('queue', 'shows the tickets that wait in their order, or leaves them out', async (stage) => {
    const crew = await crewOf(stage, 3);
    const [holder, second, third] = crew;
    const [a, b, c] = [holder.ticket(), second.ticket(), third.ticket()];
    const waiters = async () => {
      const state = await promiseOf(third.store.inspect({ name: stage.name }));
      return state?.waiters?.map(({ ticket }) => ticket);
    };
    await granted(holder, stage.name, a);
    if ((await waiters()) === undefined) return;
    await second.enqueue(stage.name, b);
    await third.enqueue(stage.name, c);
    assert.deepEqual(await waiters(), [b, c]);
    await ask(stage, [second, b], [third, c]);
    await holder.release(stage.name, a);
    await grantOf(stage, second, b);
    await ask(stage, [third, c]);
    assert.deepEqual(await waiters(), [c]);
    await third.release(stage.name, c);
    assert.deepEqual(await waiters(), []);
  }),

  ruleOf('queue', 'never queues a ticket by a heartbeat, nor one that must not wait', async (stage) => {
    const crew = await crewOf(stage, 2);
    const [holder, other] = crew;
    const a = holder.ticket();
    await granted(holder, stage.name, a);
    assert.equal((await other.beat(stage.name, other.ticket())).status, 'gone');
    const once = other.ticket();
    // A backend may look for others only at a name that is held for longer than a moment.
    await sleep(60);
    assert.equal((await other.tryOnce(stage.name, once)).status, 'busy');
    await sleep(60);
    const renewed = await holder.renew(stage.name, a);
    assert(renewed.status === 'renewed' && !renewed.waiting, 'the ticket that must not wait counts as one that waits');
    assert(
      !holder.messages.some(({ kind }) => kind === 'wanted'),
      'the owner gets a message about a ticket that must not wait',
    );
    await holder.release(stage.name, a);
    assert.equal(await holder.ownerOf(stage.name), undefined);
  }),

  ruleOf('queue', 'requeues: another process comes first, then this one again', async (stage) => {
    const crew = await crewOf(stage, 2);
    const [holder, other] = crew;
    const [a, again, b] = [holder.ticket(), holder.ticket(), other.ticket()];
    await granted(holder, stage.name, a);
    await other.enqueue(stage.name, b);
    assert.equal((await holder.requeue(stage.name, a, again)).status, 'busy');
    await grantOf(stage, other, b);
    await other.release(stage.name, b);
    await grantOf(stage, holder, again);
    assert.equal((await other.requeue(stage.name, b, other.ticket())).status, 'not-owner');
    assert.equal(await other.ownerOf(stage.name), again);
  }),

  ruleOf('queue', 'grants a requeued name again if nobody waits', async (stage) => {
    const crew = await crewOf(stage, 1);
    const [holder] = crew;
    const [a, again] = [holder.ticket(), holder.ticket()];
    await granted(holder, stage.name, a);
    const answer = await holder.requeue(stage.name, a, again);
    if (answer.status !== 'granted') await grantOf(stage, holder, again);
    assert.equal(await holder.ownerOf(stage.name), again);
  }),

  rule(
    'tells a process that keeps a released name that another one waits, or the service refuses "linger"',
    async (stage) => {
      const [one, two] = [await stage.locks(), await stage.locks()];
      const { store, backend } = await stage.client();
      const { queue } = store;
      const { name } = backend;
      const options = { ttl: 600_000, linger: 300_000 };
      if (name !== 'memory' && (!queue || queue.pace)) {
        return assert.rejects(one.acquire(stage.name, options), { code: 'LOCK_CONFIG' });
      }
      let last = 0;
      const hold = () => one.withLock(stage.name, options, async ({ fencingToken }) => void (last = fencingToken));
      // The first holds open the channel for messages.
      const lingers = async () => (await hold(), two.isLocked(stage.name));
      if (name !== 'memory') await stage.until('the name stays with its process', lingers);
      const next = await two.acquire(stage.name, { wait: 60_000 });
      assertAbove(next.fencingToken, last);
      await next.release();
    },
  ),

  ruleOf('queue', 'loses no waiter that queues while a release commits', async (stage) => {
    const crew = await crewOf(stage, 2);
    const [holder, other] = crew;
    for (let round = 0; round < 50; round++) {
      const name = `${stage.name}:${round}`;
      const [a, b] = [holder.ticket(), other.ticket()];
      await granted(holder, name, a);
      const [queued] = await Promise.all([other.enqueue(name, b), holder.release(name, a)]);
      if (queued.status !== 'granted') await grantOf(stage, other, b, name);
      assert.equal(await holder.ownerOf(name), b);
    }
  }),
];

/** Asks as waiters do: on a slow machine, their last requests may be too long ago for them to count as alive. */
async function ask({ name }: Stage, ...waiting: readonly (readonly [StoreClient, string])[]): Promise<void> {
  await Promise.all(waiting.map(([client, ticket]) => client.beat(name, ticket)));
}

async function crewOf<N extends 1 | 2 | 3>(stage: Stage, size: N): Promise<Crew[N]> {
  const clients = [];
  for (let index = 0; index < size; index++) clients.push(await stage.client());
  await Promise.all(clients.map((client) => client.listen()));
  return clients as unknown as Crew[N];
}

interface Crew {
  1: [StoreClient];
  2: [StoreClient, StoreClient];
  3: [StoreClient, StoreClient, StoreClient];
}

/** A message grants the name, or the heartbeats of a waiter find it granted. */
async function grantOf(stage: Stage, client: StoreClient, ticket: string, name = stage.name): Promise<void> {
  await stage.until(`${ticket} is granted`, async () => {
    return client.isGranted(ticket) || (await client.beat(name, ticket)).status === 'granted';
  });
}

/** The message of a grant to a ticket whose process never asks. */
async function tellsOf(stage: Stage, client: StoreClient, ticket: string): Promise<GrantMessage> {
  await stage.until(`a message grants the name to ${ticket}`, () => client.isGranted(ticket));
  const message = client.grantOf(ticket)!;
  assert.equal(message.name, stage.name);
  assert(message.claim > 0 && message.claim <= client.long, `claim ${message.claim} of ${client.long}`);
  return message;
}
