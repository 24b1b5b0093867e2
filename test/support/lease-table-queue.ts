import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { leaseTable } from 'nest-redis-lock/postgres';
import { lockKey } from '../../lib/backends/postgres/lease-table/lease-table.js';
import { eventually } from './eventually.js';
import { asBusy, asGranted, QueuePeer } from './queue-peer.js';
import { startPostgresServer, type PostgresServer } from './servers/postgres-server.js';

export let server: PostgresServer;

/** Looks at the tables. */
export let db: pg.Pool;

export let name: string;

let peers: QueuePeer[];

export async function peer(prefix?: string): Promise<QueuePeer> {
  return silentPeer(prefix).listen();
}

/** Lives and asks, but no message reaches it. */
export function silentPeer(prefix?: string): QueuePeer {
  const made = new QueuePeer(leaseTable(server.url), prefix);
  peers.push(made);
  return made;
}

export async function rows(text: string, values: unknown[] = []): Promise<unknown[][]> {
  return (await db.query<unknown[]>({ text, values, rowMode: 'array' })).rows;
}

const key = (of = name) => lockKey(undefined, of);

export async function owner(of = name): Promise<unknown> {
  const found = await rows('SELECT owner FROM nest_redis_lock.locks WHERE key = $1 AND expires_at > now()', [key(of)]);
  return found[0]?.[0] ?? null;
}

export async function leaseLeft(of = name): Promise<number> {
  const text =
    'SELECT extract(epoch FROM expires_at - clock_timestamp()) * 1000 FROM nest_redis_lock.locks WHERE key = $1';
  return Number((await rows(text, [key(of)]))[0]?.[0]);
}

export async function queued(of = name): Promise<unknown[]> {
  const found = await rows('SELECT ticket FROM nest_redis_lock.waiters WHERE key = $1 ORDER BY arrival', [key(of)]);
  const [counted] = await rows('SELECT waiting FROM nest_redis_lock.locks WHERE key = $1', [key(of)]);
  expect(Number(counted?.[0] ?? 0)).toBe(found.length);
  return found.map(([ticket]) => ticket);
}

/** What the end of a lease does; or the lease ends `ms` from now. */
export async function expire(ms = -1, of = name): Promise<void> {
  const text = `UPDATE nest_redis_lock.locks SET expires_at = clock_timestamp() + $2 * interval '1 ms' WHERE key = $1`;
  await db.query(text, [key(of), ms]);
}

/** As if nothing had been heard of the waiter for `ms`. */
export async function silence(ticket: string, ms: number): Promise<void> {
  const text = `UPDATE nest_redis_lock.waiters SET seen_at = seen_at - $2 * interval '1 ms' WHERE ticket = $1`;
  await db.query(text, [ticket, ms]);
}

/** Messages that were sent to the peer before now have come when this resolves. */
export async function heardAll({ process, messages }: QueuePeer): Promise<void> {
  const mark = randomUUID();
  await db.query('SELECT pg_notify($1, $2)', [`nest_redis_lock:${process}`, `revoked ${mark}`]);
  await eventually(() => messages.some(({ ticket }) => ticket === mark));
}

/** One peer owns the name, and the other waits for it. */
export async function ownerAndWaiter() {
  const [b, a] = [await peer(), await peer()];
  const [b1, a1] = [b.ticket(), a.ticket()];
  asGranted(await b.enqueue(name, b1));
  asBusy(await a.enqueue(name, a1));
  return { a, a1, b, b1 };
}

/** Starts a server, and gives each test an unused name. */
export function startLeaseTable(): void {
  beforeAll(async () => {
    server = await startPostgresServer();
    db = new pg.Pool({ connectionString: server.url, max: 2 });
  });
  beforeEach(() => {
    name = randomUUID();
    peers = [];
  });
  afterEach(async () => {
    await Promise.all(peers.map(({ backend }) => backend.close()));
  });
  afterAll(async () => {
    await db.end();
    await server.stop();
  });
}
