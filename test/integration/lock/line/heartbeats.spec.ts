import { setTimeout } from 'node:timers/promises';
import { eventually } from '../../../support/eventually.js';
import {
  foreign,
  name,
  owner,
  peer,
  plain,
  startQueueOnRedis,
  unreachable,
  waiters,
} from '../../../support/queue-on-redis.js';
import { asBusy, asGranted } from '../../../support/queue-peer.js';

startQueueOnRedis();

const NAMES = 50;

/** A process waits for many names, which another one holds. */
async function waitingForMany() {
  const [holder, waiter] = [await peer(), await peer()];
  const asked = Array.from({ length: NAMES }, (_, number) => ({ each: `${name}-${number}`, ticket: waiter.ticket() }));
  for (const { each, ticket } of asked) {
    asGranted(await holder.enqueue(each, holder.ticket()));
    asBusy(await waiter.enqueue(each, ticket));
  }
  return { waiter, asked };
}

async function scriptsRun(): Promise<number> {
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(await plain.info('commandstats'))?.[1] ?? 0);
}

it('heartbeats of one turn of the event loop share runs of their script', async () => {
  const { waiter, asked } = await waitingForMany();
  // Redis knows the script from then on.
  for (const { each, ticket } of asked.slice(0, 1)) await waiter.beat(each, ticket);
  await plain.config('RESETSTAT');
  const answers = await Promise.all(asked.map(({ each, ticket }) => waiter.beat(each, ticket)));
  for (const answer of answers) expect(answer).toMatchObject({ status: 'busy', first: true });
  // The first goes at once.
  expect(await scriptsRun()).toBeLessThanOrEqual(1 + Math.ceil((NAMES - 1) / 24));
});

it('each of them has an answer of its own', async () => {
  const { waiter, asked } = await waitingForMany();
  const [, free, gone, broken] = asked.map(({ each }) => each) as [string, string, string, string];
  await plain.del(`lock:{${free}}`);
  const { ticket: left } = asked[2] as (typeof asked)[number];
  await waiter.release(gone, left);
  await plain.del(`lock:{${broken}}`);
  await plain.rpush(`lock:{${broken}}`, 'foreign');
  foreign.push(`lock:{${broken}}`);
  const answers = await Promise.allSettled(asked.map(({ each, ticket }) => waiter.beat(each, ticket)));
  const statusOf = (answer: (typeof answers)[number] | undefined) =>
    answer?.status === 'fulfilled' ? answer.value.status : String(answer?.reason);
  expect(statusOf(answers[0])).toBe('busy');
  expect(statusOf(answers[1])).toBe('granted');
  expect(statusOf(answers[2])).toBe('gone');
  expect(statusOf(answers[3])).toContain('WRONGTYPE');
  expect(answers.slice(4).map(statusOf)).toEqual(Array.from({ length: NAMES - 4 }, () => 'busy'));
  expect(await waiters(gone)).toEqual([]);
});

it('a ticket that said so pauses and keeps its turn, unless messages miss it', async () => {
  const [holder, deaf, first, second] = [await peer(), unreachable(), await peer(), await peer()];
  const [held, missed, silent, paused] = [holder.ticket(), deaf.ticket(), first.ticket(), second.ticket()];
  asGranted(await holder.enqueue(name, held));
  for (const [each, ticket] of [
    [deaf, missed],
    [first, silent],
    [second, paused],
  ] as const) {
    asBusy(await each.enqueue(name, ticket));
  }
  const aliveFor = async (ticket: string) => {
    const [[seconds], entry] = await Promise.all([plain.time(), plain.hget(`lock:{${name}}:waiters`, ticket)]);
    return Number(entry?.split(':')[0]) - Number(seconds) * 1_000;
  };
  asBusy(await second.beat(name, paused, 17_000));
  expect(await aliveFor(paused)).toBeGreaterThan(20_000);
  // The keys of the queue last until its next heartbeat at least.
  expect(await plain.pttl(`lock:{${name}}:queue`)).toBeGreaterThan(30_000);
  // A waiter without a heartbeat for 1.5 s is passed over.
  await setTimeout(1_700);
  asBusy(await deaf.beat(name, missed, 17_000));
  await holder.release(name, held);
  expect(await owner()).toBe(paused);
  expect(await eventually(() => second.messages.find(({ kind }) => kind === 'grant'))).toMatchObject({
    ticket: paused,
  });
  asBusy(await deaf.beat(name, missed, 17_000));
  expect(await aliveFor(missed)).toBeLessThan(7_000);
});
