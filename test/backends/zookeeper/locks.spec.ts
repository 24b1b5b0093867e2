import { setTimeout as sleep } from 'node:timers/promises';
import { type Lock, LockBackendError, LockLostError, LockTimeoutError } from 'nest-redis-lock';
import pg from 'pg';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { asBusy, asGranted, QueuePeer } from '../../support/queue-peer.js';
import { startPostgresServer } from '../../support/servers/postgres-server.js';
import {
  appOn,
  backendOn,
  closedAfterwards,
  endSession,
  oneZooKeeper,
  Onlooker,
  proxied,
  server,
  SESSION,
  sessionsWithNodes,
} from './one-zookeeper.js';

oneZooKeeper();

it('excludes the callers of two processes, and serves all of them', async () => {
  const apps = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  let [inside, rounds] = [0, 0];
  const tokens: number[] = [];
  const caller = async ({ locks }: (typeof apps)[number]) => {
    for (let round = 0; round < 20; round++) {
      await locks.withLock('hot', { wait: 60_000 }, async ({ fencingToken }) => {
        inside += 1;
        expect(inside).toBe(1);
        tokens.push(fencingToken);
        await sleep(0);
        rounds += 1;
        inside -= 1;
      });
    }
  };
  await Promise.all(apps.flatMap((app) => Array.from({ length: 10 }, () => caller(app))));
  expect(rounds).toBe(400);
  expect(tokens).toEqual(tokens.toSorted((one, other) => one - other));
  expect(new Set(tokens).size).toBe(tokens.length);
});

it('wakes a waiter when the holder releases', async () => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire('passed on');
  const waiting = two.locks.acquire('passed on', { wait: 10_000 });
  await eventually(async () => ((await one.locks.inspect('passed on'))?.waiting ?? 0) > 0);
  await held.release();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
  await next.release();
  expect(await one.locks.isLocked('passed on')).toBe(false);
});

it('refuses a busy name to those who do not wait, and leaves no node of theirs', async () => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire('busy');
  expect(await two.locks.tryAcquire('busy')).toBeNull();
  await expect(two.locks.acquire('busy', { wait: 100 })).rejects.toBeInstanceOf(LockTimeoutError);
  const onlooker = await Onlooker.open();
  await eventually(async () => (await onlooker.children('/locks/busy'))?.length === 1);
  await held.release();
});

it.each([
  'a/b',
  '.',
  '..',
  '~',
  '~home',
  'nul\0byte',
  '\u{1f512} lock',
  'trailing  ',
  'Case',
  'case',
  'x'.repeat(3_000),
  '%2F',
])('locks the name %j', async (name) => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire(name);
  expect(await two.locks.tryAcquire(name)).toBeNull();
  const similar = await two.locks.acquire(`${name.slice(0, -1)}!`);
  expect((await two.locks.inspect(name))?.owner).toBe(held.owner);
  await similar.release();
  await held.release();
});

it('shows owner, label, tokens and waiters, and frees by force', async () => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire('shown');
  const waiting = two.locks.acquire('shown', { wait: 10_000 });
  const state = await eventually(async () => {
    const found = await two.locks.inspect('shown');
    return found?.waiting === 1 ? found : undefined;
  });
  expect(state).toMatchObject({ owner: held.owner, label: expect.stringMatching(/:\d+$/), ttl: 10_000 });
  expect(state.fencingToken).toBeGreaterThanOrEqual(held.fencingToken);
  expect(await two.locks.forceRelease('shown')).toBe(true);
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(state.fencingToken as number);
  await eventually(() => held.signal.aborted);
  expect(held.held).toBe(false);
  await next.release();
  expect(await two.locks.forceRelease('shown')).toBe(false);
});

async function peer(options = {}): Promise<QueuePeer> {
  const made = new QueuePeer(backendOn(options));
  closedAfterwards(made.backend);
  return made.listen();
}

it('refuses the write of a holder that stood still for longer than its session', async () => {
  const database = await startPostgresServer();
  const row = new pg.Client(database.url);
  await row.connect();
  const holder = Child.start('zookeeper-holder.mjs', [server.connection, 'frozen']);
  try {
    await row.query('CREATE TABLE account (balance int, fence bigint); INSERT INTO account VALUES (0, 0)');
    const write = async (balance: number, fence: number) =>
      (await row.query('UPDATE account SET balance = $1, fence = $2 WHERE fence <= $2', [balance, fence])).rowCount;
    const { locks } = await appOn();
    const { fencingToken: stale } = await holder.says<{ fencingToken: number }>('held');
    expect(await write(1, stale)).toBe(1);
    holder.signal('SIGSTOP');
    const stopped = performance.now();
    const next = await locks.acquire('frozen', { wait: 20_000 });
    expect(next.fencingToken).toBeGreaterThan(stale);
    expect(await write(2, next.fencingToken)).toBe(1);
    // The session may have ended sooner: its last heartbeat was before the stop. The holder looks for a pause of 1 s.
    await sleep(stopped + 1_100 - performance.now());
    holder.signal('SIGCONT');
    expect(await holder.says('woken')).toEqual({ held: false, aborted: true, fencingToken: stale });
    expect(await write(3, stale)).toBe(0);
    await holder.says('closed');
    expect(await holder.exited).toBe(0);
    expect((await locks.inspect('frozen'))?.owner).toBe(next.owner);
    await next.release();
  } finally {
    await holder.kill();
    await row.end();
    await database.stop();
  }
});

it('leaves no node where the reply to its creation was lost', async () => {
  const proxy = await proxied();
  const [one, two] = [await appOn({ servers: `127.0.0.1:${proxy.port}` }), await appOn()];
  await one.locks.withLock('orphan', async () => {});
  const lost = proxy.lose('-lock-', true);
  await expect(one.locks.tryAcquire('orphan')).rejects.toBeInstanceOf(LockBackendError);
  await lost;
  const onlooker = await Onlooker.open();
  await eventually(async () => (await onlooker.children('/locks/orphan'))?.length === 0);
  await two.locks.withLock('orphan', async () => {});
});

it('aborts the signals of its locks, and makes a new session, when no server answers', async () => {
  const proxy = await proxied();
  const { locks } = await appOn({ servers: `127.0.0.1:${proxy.port}` });
  const [one, two]: Lock[] = [await locks.acquire('silent'), await locks.acquire('silent too')];
  proxy.hold();
  await eventually(() => one!.signal.aborted && two!.signal.aborted);
  proxy.reset();
  proxy.heal();
  const again = await eventually(() => locks.tryAcquire('silent').catch(() => null));
  expect(again.fencingToken).toBeGreaterThan(one!.fencingToken);
  await again.release();
});

it('trusts a session for no longer than was asked for, whatever length the answer tells', async () => {
  const proxy = await proxied();
  proxy.alterReplies((reply) => {
    // The first reply of a connection: its own length, the version, the length of the session in ms.
    if (reply.length > 12 && reply.readInt32BE(4) === 0 && reply.readInt32BE(8) === SESSION) {
      reply.writeInt32BE(100 * SESSION, 8);
    }
    return reply;
  });
  const [holder, rival] = [await appOn({ servers: `127.0.0.1:${proxy.port}` }), await appOn()];
  const held = await holder.locks.acquire('told longer');
  proxy.hold();
  await rival.locks.withLock('told longer', { wait: '1m' }, async () => expect(held.held).toBe(false));
  proxy.reset();
  proxy.heal();
});

it('keeps its locks when a connection breaks and another one opens in time', async () => {
  const proxy = await proxied();
  const { locks } = await appOn({ servers: `127.0.0.1:${proxy.port}`, sessionTimeout: 8_000 });
  const held = await locks.acquire('kept');
  proxy.reset();
  await eventually(() => locks.isLocked('kept').catch(() => false));
  await held.extend();
  expect(held.held).toBe(true);
  await held.release();
});

it('gives a waiter whose session has ended no lock, and a new place when it asks again', async () => {
  const [holder, waiter] = [await peer({ sessionTimeout: 10_000 }), await peer({ sessionTimeout: 10_000 })];
  const [a, b] = [holder.ticket(), waiter.ticket()];
  asGranted(await holder.enqueue('revoked', a));
  const before = await sessionsWithNodes(server);
  asBusy(await waiter.enqueue('revoked', b));
  const after = await sessionsWithNodes(server);
  await endSession(server, after.find((session) => !before.includes(session)) as bigint);
  // A request that is under way when the session moves to the other connection is lost.
  const state = () => Promise.resolve(waiter.beat('revoked', b)).catch(() => undefined);
  await eventually(async () => (await state())?.status === 'gone');
  await holder.release('revoked', a);
  expect(waiter.grants(b)).toEqual([]);
  asGranted(await waiter.enqueue('revoked', waiter.ticket()));
});

it('serves those who wait when the server was killed and has restarted', async () => {
  const [one, two] = [await appOn({ sessionTimeout: 10_000 }), await appOn({ sessionTimeout: 10_000 })];
  const held = await one.locks.acquire('restarted');
  const waiting = two.locks.acquire('restarted', { wait: 60_000 });
  await eventually(async () => (await one.locks.inspect('restarted'))?.waiting === 1);
  await server.restart();
  // Lost where the server needed longer than the session.
  await held.release().catch((error: unknown) => expect(error).toBeInstanceOf(LockLostError));
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
  await next.release();
});

it('grants the name to one waiter with each release, in order of arrival', async () => {
  const crew = await Promise.all(Array.from({ length: 5 }, () => peer({ sessionTimeout: 10_000 })));
  const tickets = crew.map((each) => each.ticket());
  for (const [index, each] of crew.entries()) await each.enqueue('in order', tickets[index] as string);
  for (let index = 0; index + 1 < crew.length; index++) {
    await crew[index]!.release('in order', tickets[index] as string);
    await crew[index + 1]!.granted(tickets[index + 1] as string);
    const granted = crew.map((each, place) => each.grants(tickets[place] as string).length);
    expect(granted).toEqual(crew.map((_each, place) => (place > 0 && place <= index + 1 ? 1 : 0)));
  }
});

it('tells the holder that others wait, and its process of a node that somebody removed', async () => {
  const [holder, waiter] = [await peer({ sessionTimeout: 10_000 }), await peer({ sessionTimeout: 10_000 })];
  const [a, b] = [holder.ticket(), waiter.ticket()];
  asGranted(await holder.enqueue('watched', a));
  asBusy(await waiter.enqueue('watched', b));
  await eventually(() => holder.wanted(a).length > 0);
  const onlooker = await Onlooker.open();
  const [first] = (await onlooker.children('/locks/watched'))!.filter((child) =>
    child.startsWith(encodeURIComponent(a)),
  );
  await onlooker.remove(`/locks/watched/${first}`);
  await eventually(() => holder.messages.some(({ kind, ticket }) => kind === 'revoked' && ticket === a));
  await waiter.granted(b);
  expect(await holder.mint('watched', a)).toBeNull();
});

it('leaves no nodes when it closes', async () => {
  const crew = [await peer(), await peer()] as const;
  asGranted(await crew[0].enqueue('closed', crew[0].ticket()));
  asBusy(await crew[1].enqueue('closed', crew[1].ticket()));
  await crew[1].backend.close();
  await crew[0].backend.close();
  const onlooker = await Onlooker.open();
  expect(await onlooker.children('/locks/closed')).toBeUndefined();
  expect(await server.ask('dump')).not.toContain('/locks/closed');
});

it('keeps a lock without renewal for its ttl, also where that is longer than the session', async () => {
  const [one, two] = [await appOn({ sessionTimeout: 2_000 }), await appOn()];
  const start = performance.now();
  const held = await one.locks.acquire('longer', { ttl: 6_000, renew: false });
  await eventually(() => !held.held);
  expect(performance.now() - start).toBeGreaterThan(5_900);
  const next = await two.locks.acquire('longer', { wait: 20_000 });
  await next.release();
});
