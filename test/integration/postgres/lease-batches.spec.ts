import type { PoolClient } from 'pg';
import { leaseTable } from 'nest-redis-lock/postgres';
import { lockKey } from '../../../lib/backends/postgres/lease-table/lease-table.js';
import { eventually } from '../../support/eventually.js';
import { db, name, owner, peer, server, silentPeer, startLeaseTable } from '../../support/lease-table-queue.js';
import { asBusy, asGranted, CLAIM, QueuePeer, TTL } from '../../support/queue-peer.js';

startLeaseTable();

/** Names in the order of their keys. */
function namesInOrder(count: number): readonly string[] {
  const names = Array.from({ length: count }, (_, index) => `${name}:${index}`);
  const bytesOf = (of: string) => Buffer.from(lockKey({ name: of }).slice(2), 'hex');
  return names.toSorted((a, b) => Buffer.compare(bytesOf(a), bytesOf(b)));
}

async function takeAll(names: readonly string[], by: QueuePeer): Promise<Map<string, string>> {
  const tickets = new Map(names.map((each) => [each, by.ticket()]));
  await Promise.all([...tickets].map(async ([each, ticket]) => asGranted(await by.enqueue(each, ticket))));
  return tickets;
}

/** The first call may go alone; the others share a statement. */
async function releaseAll(tickets: Iterable<readonly [string, string]>, by: QueuePeer): Promise<string[]> {
  const answers = await Promise.all([...tickets].map(([each, ticket]) => by.release(each, ticket)));
  return answers.map(({ status }) => status);
}

/** Runs `body` in a transaction, which is committed when it ends. */
async function inTransaction(body: (client: PoolClient) => Promise<void>): Promise<void> {
  const client = await db.connect();
  try {
    await client.query('BEGIN');
    await body(client);
  } finally {
    await client.query('COMMIT');
    client.release();
  }
}

async function someStatementWaits(text: string): Promise<void> {
  const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1`;
  await eventually(async () => (await db.query(waiting, [`%${text}%`])).rows.length > 0);
}

describe('a release of many names', () => {
  it('answers each of them: one released twice, one of another, one of nobody', async () => {
    const [by, other] = [await peer(), await peer()];
    const names = namesInOrder(6);
    const [theirs, nobodys] = [`${name}:theirs`, `${name}:nobodys`];
    const tickets = await takeAll(names, by);
    const next = other.ticket();
    asGranted(await other.enqueue(theirs, next));
    const twice = [names[3] as string, tickets.get(names[3] as string) as string] as const;
    const calls = [...tickets, twice, [theirs, by.ticket()] as const, [nobodys, by.ticket()] as const];
    const answers = await Promise.all(calls.map(([each, ticket]) => by.release(each, ticket)));
    const statuses = answers.map(({ status }) => status);
    const [, , , first, , , second] = answers;
    expect(new Set([first?.status, second?.status])).toEqual(new Set(['gone', 'released']));
    expect([first, second].find((each) => each?.status === 'gone')?.resent).toBe(true);
    expect(statuses.toSpliced(6, 1).toSpliced(3, 1)).toEqual([...Array(5).fill('released'), 'taken', 'gone']);
    expect(answers.at(-1)?.resent).toBe(false);
    expect(await owner(theirs)).toBe(next);
    expect(await Promise.all(names.map((each) => owner(each)))).toEqual(names.map(() => null));
  });

  it('hands on a name for which, unheard of here, another process waits', async () => {
    const [by, other] = [silentPeer(), await peer()];
    const names = namesInOrder(5);
    const tickets = await takeAll(names, by);
    const wanted = names[2] as string;
    const waiter = other.ticket();
    asBusy(await other.enqueue(wanted, waiter));
    expect(await releaseAll(tickets, by)).toEqual(names.map(() => 'released'));
    expect(await owner(wanted)).toBe(waiter);
    expect(await other.granted(waiter)).toMatchObject({ name: wanted });
  });

  it('sees a waiter who queues while it waits for the row', async () => {
    const [by, other] = [await peer(), await peer()];
    const names = namesInOrder(5);
    const tickets = await takeAll(names, by);
    const wanted = names[2] as string;
    const waiter = other.ticket();
    let released: Promise<string[]> | undefined;
    await inTransaction(async (client) => {
      const values = [lockKey({ name: wanted }), waiter, TTL, CLAIM, JSON.stringify(wanted)];
      await client.query('SELECT nest_redis_lock.enqueue_v1($1, $2, $3, $4, $5)', values);
      released = releaseAll(tickets, by);
      await someStatementWaits('r.number');
    });
    expect(await released).toEqual(names.map(() => 'released'));
    expect(await owner(wanted)).toBe(waiter);
    expect(await other.granted(waiter)).toMatchObject({ name: wanted });
  });

  it('leaves a name to the one who has it by now', async () => {
    const [by, other] = [await peer(), await peer()];
    const names = namesInOrder(5);
    const tickets = await takeAll(names, by);
    const lost = names[2] as string;
    const next = other.ticket();
    let released: Promise<string[]> | undefined;
    await inTransaction(async (client) => {
      const text = 'UPDATE nest_redis_lock.locks SET owner = $2 WHERE key = $1';
      await client.query(text, [lockKey({ name: lost }), next]);
      released = releaseAll(tickets, by);
      await someStatementWaits('r.number');
    });
    expect(await released).toEqual(names.map((each) => (each === lost ? 'taken' : 'released')));
    expect(await owner(lost)).toBe(next);
  });
});

it.each(['takes', 'releases'])('%s lock their rows in the order of the keys, whatever the plan', async (kind) => {
  // Rows that lie in another order, and a plan that would follow it.
  const options = '-c enable_nestloop=off -c enable_mergejoin=off';
  const by = new QueuePeer(leaseTable({ connectionString: server.url, options }));
  const names = namesInOrder(6);
  const tickets = new Map<string, string>();
  for (const each of [`${name}:alone`, ...names.toReversed()]) {
    for (const [of, ticket] of await takeAll([each], by)) tickets.set(of, ticket);
    if (kind === 'takes') await releaseAll(tickets, by);
  }
  // The first call may go alone; the others come in the order of the rows.
  const calls = [...tickets];
  let done: Promise<unknown> | undefined;
  await inTransaction(async (client) => {
    await client.query('SELECT 1 FROM nest_redis_lock.locks WHERE key = $1 FOR UPDATE', [
      lockKey({ name: names[2] as string }),
    ]);
    done =
      kind === 'takes'
        ? takeAll(
            calls.map(([each]) => each),
            by,
          )
        : releaseAll(calls, by);
    await someStatementWaits('unnest');
    const text = 'SELECT key FROM nest_redis_lock.locks WHERE key = ANY ($1::bytea[]) FOR UPDATE SKIP LOCKED';
    const { rows } = await client.query<{ key: Buffer }>(text, [names.map((each) => lockKey({ name: each }))]);
    const unlocked = new Set(rows.map(({ key }) => `\\x${key.toString('hex')}`));
    expect(names.map((each) => unlocked.has(lockKey({ name: each })))).toEqual([false, false, true, true, true, true]);
  });
  await done;
  await by.backend.close();
});
