import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Lock, type LockBackend, type LockService, LockTimeoutError } from 'nest-redis-lock';
import type { RenewAnswer } from 'nest-redis-lock/backend';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp } from '../../support/lock-app.js';
import { startZooKeeperEnsemble, type ZooKeeperServer } from '../../support/servers/zookeeper-server.js';
import { appOn, backendOn, closedAfterwards, oneZooKeeper, proxied } from './one-zookeeper.js';
import { openBackend, replacing } from '../../support/open-backend.js';

/** The shortest session (ms), of two ticks. The longest takes ten times as long. */
const SHORT = 6_000;
const LONG = 60_000;

oneZooKeeper({ tickTime: 3_000 });

/** Each client begins with any of the servers. Enough of them, so that each order occurs. */
const CLIENTS = 10;

function serversOf(...proxies: readonly Pick<FaultProxy, 'port'>[]): string[] {
  return proxies.map(({ port }) => `127.0.0.1:${port}`);
}

/** A host that answers no request for a connection: its queue of them is full. */
async function blackHole(): Promise<{ port: number }> {
  const source = `const s = require('node:net').createServer().listen(0, '127.0.0.1', 1, () => console.log(s.address().port))`;
  const child = spawn(process.execPath, ['-e', source], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [bytes] = (await once(child.stdout, 'data')) as [Buffer];
  const port = Number(bytes.toString());
  child.kill('SIGSTOP');
  const sockets = Array.from({ length: 4 }, () => connect({ host: '127.0.0.1', port }).on('error', () => {}));
  closedAfterwards({
    close: async () => {
      for (const socket of sockets) socket.destroy();
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  });
  return { port };
}

async function serves(locks: LockService): Promise<void> {
  await eventually(() =>
    locks.isLocked('anything').then(
      () => true,
      () => false,
    ),
  );
}

function backends(servers: readonly string[], sessionTimeout: number): LockBackend[] {
  return Array.from({ length: CLIENTS }, () => closedAfterwards(backendOn({ servers, sessionTimeout })));
}

it.each([1, 2])(
  'starts with `failFast` where one server works, and %d others accept connections only',
  async (count) => {
    const working = await proxied();
    const silent = await Promise.all(Array.from({ length: count }, () => proxied()));
    for (const each of silent) each.hold();
    const apps = backends(serversOf(working, ...silent), 10_000).map(async (backend) => {
      const { locks } = closedAfterwards(await startLockApp({ backend, failFast: true, commandTimeout: 3_000 }));
      await locks.withLock('started', { wait: 10_000 }, async () => {});
    });
    await Promise.all(apps);
  },
);

it('moves on from a server that falls silent, past another silent one, and keeps its locks', async () => {
  const [first, second, silent] = [await proxied(), await proxied(), await proxied()];
  second.hold();
  silent.hold();
  // Twice as long as it takes where the machine is quick.
  const session = 4 * SHORT;
  const held = await Promise.all(
    backends(serversOf(first, second, silent), session).map(async (backend, index) => {
      const { locks } = closedAfterwards(await startLockApp({ backend }));
      const lock = await eventually(() => locks.acquire(`moved ${index}`).catch(() => null));
      return { locks, lock };
    }),
  );
  // A lease counts from the request, which has waited for a connection past the silent servers.
  await Promise.all(held.map(({ lock }) => lock.extend()));
  second.heal();
  first.hold();
  const fell = performance.now();
  await Promise.all(held.map(({ locks }) => serves(locks)));
  await sleep(Math.max(0, fell + session - performance.now()));
  expect(held.map(({ lock }) => lock.held)).toEqual(held.map(() => true));
});

it('keeps a connection that it has opened after one that never opened', async () => {
  const working = await proxied();
  const servers = serversOf(await blackHole(), working);
  let connections = 0;
  await Promise.all(
    backends(servers, SHORT).map(async (backend) => {
      openBackend(backend, { connected: () => (connections += 1) });
      await eventually(() =>
        backend.ping().then(
          () => true,
          () => false,
        ),
      );
    }),
  );
  await sleep(SHORT / 2);
  expect(connections).toBe(CLIENTS);
});

it('keeps its locks, and watches them, when a connection breaks and its watches exceed what a message may hold', async () => {
  const proxy = await proxied();
  const root = `/${'long'.repeat(200)}`;
  let renews = true;
  const one = replacing(backendOn({ servers: serversOf(proxy), root, sessionTimeout: LONG }), (inner) => ({
    renew: (requests) => (renews ? inner.renew(requests) : requests.map(() => new Promise<RenewAnswer>(() => {}))),
  }));
  const two = backendOn({ root });
  const { locks } = closedAfterwards(
    await startLockApp({ backend: one, defaults: { ttl: LONG }, commandTimeout: 20_000 }),
  );
  const others = closedAfterwards(await startLockApp({ backend: two, commandTimeout: 20_000 })).locks;
  const held: Lock[] = [];
  for (let index = 0; index < 1_000; index += 100) {
    const names = Array.from({ length: 100 }, (_name, each) => `kept ${index + each}`);
    held.push(...(await Promise.all(names.map((name) => locks.acquire(name)))));
  }
  // A process that has waited learns what happens to its locks.
  const waited = await others.acquire('waited for');
  await expect(locks.acquire('waited for', { wait: 500 })).rejects.toBeInstanceOf(LockTimeoutError);
  await waited.release();
  proxy.reset();
  await serves(locks);
  const [first, last] = [held.shift(), held.pop()];
  // No renewal notices it.
  renews = false;
  for (const lock of [first, last]) expect(await others.forceRelease(lock!.keys[0]!)).toBe(true);
  await eventually(() => first!.signal.aborted && last!.signal.aborted);
  for (const lock of [first, last]) expect(lock!.signal.reason).toMatchObject({ reason: 'taken' });
  renews = true;
  await Promise.all(held.map((lock) => lock.extend()));
});

describe('a server that is cut off from the others', () => {
  const links: FaultProxy[] = [];
  let servers: readonly ZooKeeperServer[];
  beforeAll(async () => {
    servers = await startZooKeeperEnsemble(
      async (port) => {
        const link = await FaultProxy.start(port);
        links.push(link);
        return link.port;
      },
      // It answers reads for ten seconds more.
      { tickTime: 500, syncLimit: 20 },
    );
  });
  afterAll(async () => {
    await Promise.all(links.map((link) => link.stop()));
    await Promise.all(servers.map((each) => each.stop()));
  });
  afterEach(() => {
    for (const link of links) link.heal();
  });

  it.each(['a renewed lock', 'a lock without renewal', 'a read of the service'])(
    'proves no session by its answers: %s',
    async (kind) => {
      const [alone, ...others] = servers as [ZooKeeperServer, ...ZooKeeperServer[]];
      expect(await alone.ask('srvr')).toContain('Mode: follower');
      const one = await appOn({ servers: alone.connection, sessionTimeout: 2_000 });
      const two = await appOn({ servers: others.map(({ connection }) => connection), sessionTimeout: 2_000 });
      await two.locks.withLock('warm', { wait: 30_000 }, async () => {});
      const renew = kind !== 'a lock without renewal';
      const held = await one.locks.acquire(`cut off ${kind}`, { renew, ttl: 60_000, wait: 30_000 });
      for (const link of links) link.hold();
      const asks = { on: kind === 'a read of the service' };
      const asking = (async () => {
        while (asks.on) await one.locks.isLocked('cut off').catch(() => {});
      })();
      try {
        const next = await two.locks.acquire(`cut off ${kind}`, { wait: 30_000 });
        expect(held.held).toBe(false);
        await next.release();
      } finally {
        asks.on = false;
        for (const link of links) link.heal();
      }
      await asking;
    },
  );

  it('is left for another one in time, so that nothing is lost', async () => {
    const connection = servers.map((each) => each.connection);
    const apps = await Promise.all(
      Array.from({ length: CLIENTS }, () => appOn({ servers: connection, sessionTimeout: SHORT })),
    );
    const held = await Promise.all(apps.map(({ locks }, index) => locks.acquire(`moved ${index}`, { wait: 30_000 })));
    for (const link of links) link.hold();
    const fell = performance.now();
    await Promise.all(apps.map(({ locks }) => serves(locks)));
    await sleep(fell + SHORT - performance.now());
    expect(held.map((lock) => lock.held)).toEqual(held.map(() => true));
  });
});
