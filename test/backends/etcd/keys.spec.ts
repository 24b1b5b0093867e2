import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { LockConfigError, type QueueMessage } from 'nest-redis-lock';
import { etcd } from 'nest-redis-lock/etcd';
import { askEtcd, keysOf } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp } from '../../support/lock-app.js';
import { startEtcdServer, type EtcdServer } from '../../support/servers/etcd-server.js';

let server: EtcdServer;
let proxy: FaultProxy;

beforeAll(async () => {
  server = await startEtcdServer();
  proxy = await FaultProxy.start(Number(new URL(server.url).port));
});
afterAll(async () => {
  await proxy.stop();
  await server.stop();
});

const onEtcd = (options: object = {}) =>
  startLockApp({ backend: etcd({ endpoints: server.url, ...options }), cache: false });

async function deleteKey(key: string): Promise<void> {
  const { deleted } = await askEtcd<{ deleted?: string }>(server.url, '/v3/kv/deleterange', { key: btoa(key) });
  expect(deleted).toBe('1');
}

it('leaves no key and no lease behind when its application ends', async () => {
  const app = await onEtcd();
  const other = await onEtcd();
  const held = await app.locks.acquire('left behind');
  const waiting = other.locks.acquire('left behind', { wait: 60_000 });
  const keys = await eventually(async () => {
    const present = await keysOf(server.url);
    return present.some(({ key }) => key.includes('/wait/')) ? present : undefined;
  });
  expect(keys.every(({ lease }) => lease !== undefined)).toBe(true);
  await held.release();
  const next = await waiting;
  expect((await keysOf(server.url)).every(({ lease }) => lease !== undefined)).toBe(true);
  await next.release();
  await Promise.all([app.close(), other.close()]);
  expect(await keysOf(server.url)).toEqual([]);
  expect(await askEtcd<{ leases?: unknown }>(server.url, '/v3/lease/leases', {})).not.toHaveProperty('leases');
});

it('releases what a request has taken that was carried out after it was given up', async () => {
  const backend = etcd({ endpoints: `http://127.0.0.1:${proxy.port}`, ttl: 2_000 });
  await using app = await startLockApp({ backend, cache: false });
  const held = await app.locks.acquire('held meanwhile');
  const { lease, value } = (await keysOf(server.url)).find(({ key }) => key.endsWith('/held meanwhile/owner'))!;
  const late = { key: 'nest-redis-lock/lock//late/owner', value: value.replace(/\d+$/, '999'), lease };
  await askEtcd(server.url, '/v3/kv/put', { ...late, key: btoa(late.key), value: btoa(late.value) });
  expect(await app.locks.isLocked('late')).toBe(true);
  const lost = proxy.lose('/v3/kv/txn', true);
  await Promise.all([lost, app.locks.isLocked('late')]);
  await eventually(async () => !(await app.locks.isLocked('late')));
  // A server may stand still for longer: all endpoints answer by now.
  await askEtcd(server.url, '/v3/kv/put', { ...late, key: btoa(late.key), value: btoa(late.value) });
  await eventually(async () => !(await app.locks.isLocked('late')));
  held.assertHeld();
  await held.release();
});

it.each([
  ['a call that does not wait', 0],
  ['a call that waits', 100],
])('gives a free name to who waits for it, and not to %s', async (_, wait) => {
  await using app = await onEtcd();
  const { ID: lease } = await askEtcd<{ ID: string }>(server.url, '/v3/lease/grant', { TTL: 60 });
  const keys = 'nest-redis-lock/lock//waited for/';
  await askEtcd(server.url, '/v3/kv/put', { key: btoa(`${keys}wait/other:1`), value: '', lease });
  await expect(app.locks.acquire('waited for', { wait })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
  const owner = (await keysOf(server.url)).find(({ key }) => key === `${keys}owner`);
  expect(owner).toMatchObject({ value: 'other:1', lease });
  await askEtcd(server.url, '/v3/lease/revoke', { ID: lease });
});

it('trusts no grant that was made to an earlier session of its process', async () => {
  const backend = etcd({ endpoints: server.url });
  const messages: QueueMessage[] = [];
  const onMessage = (message: QueueMessage) => void messages.push(message);
  try {
    await backend.queue?.listen({ process: 'two-sessions', onMessage, onReconnect: () => {} });
    const ticket = 'two-sessions:1';
    await backend.acquire({ names: ['of this session'], ticket, ttl: 10_000 });
    const earlier = await askEtcd<{ ID: string }>(server.url, '/v3/lease/grant', { TTL: 10 });
    const present = (await keysOf(server.url)).find(({ key }) => key.endsWith('/of this session/owner'))!;
    const grant = { kind: 'grant', ticket, name: 'name', waiting: 0, offset: 0 };
    for (const lease of [earlier.ID, present.lease]) {
      const mail = { key: btoa('nest-redis-lock/mail//two-sessions'), value: btoa(JSON.stringify([grant])), lease };
      await askEtcd(server.url, '/v3/kv/put', mail);
    }
    await eventually(() => messages.length === 2);
    expect(messages).toEqual([
      expect.objectContaining({ kind: 'grant', claim: 0 }),
      expect.objectContaining({ kind: 'grant', claim: expect.any(Number) }),
    ]);
    expect(messages[1]).not.toMatchObject({ claim: 0 });
  } finally {
    await backend.close();
  }
});

it('starts its tokens above those of another store, for every process and for good', async () => {
  await using plain = await onEtcd({ root: 'moved/' });
  const before = await plain.locks.withLock('moved', async ({ fencingToken }) => fencingToken);
  const greatest = 1_700_000_000_000_000;
  await using moved = await onEtcd({ root: 'moved/', firstToken: greatest });
  const first = await moved.locks.withLock('moved', async ({ fencingToken }) => fencingToken);
  expect(before).toBeLessThan(greatest);
  expect(first).toBeGreaterThan(greatest);
  expect(Number.isSafeInteger(first)).toBe(true);
  const after = await plain.locks.withLock('moved', async ({ fencingToken }) => fencingToken);
  expect(after).toBeGreaterThan(first);
  await using lower = await onEtcd({ root: 'moved/', firstToken: 1_000 });
  const last = await lower.locks.withLock('moved', async ({ fencingToken }) => fencingToken);
  expect(last).toBeGreaterThan(after);
});

it('writes the start of its tokens again after its key was deleted', async () => {
  const options = { root: 'deleted/', firstToken: 1_000_000_000 };
  await using one = await onEtcd(options);
  await using two = await onEtcd(options);
  let last = 0;
  for (let round = 0; round < 2; round += 1) {
    for (const { locks } of [one, two]) {
      const token = await locks.withLock('deleted', { wait: 20_000 }, async ({ fencingToken }) => fencingToken);
      expect(token).toBeGreaterThan(last);
      last = token;
    }
    if (round > 0) break;
    const queued = await one.locks.acquire('deleted');
    const waiting = two.locks.acquire('deleted', { wait: 20_000 });
    await eventually(async () => (await one.locks.inspect('deleted'))?.waiting === 1);
    await deleteKey('deleted/first-token');
    await queued.release();
    const next = await waiting;
    expect(next.fencingToken).toBeGreaterThan(queued.fencingToken);
    last = next.fencingToken;
    await next.release();
    await deleteKey('deleted/first-token');
  }
});

it('gives a request up that is refused again and again', async () => {
  const answers: Record<string, object> = {
    '/v3/lease/grant': { header: {}, ID: '1', TTL: '10' },
    '/v3/kv/txn': { header: { revision: '7' }, responses: [] },
  };
  const never = createServer((request, response) => response.end(JSON.stringify(answers[request.url ?? ''] ?? {})));
  await new Promise<void>((resolve) => never.listen(0, '127.0.0.1', () => resolve()));
  const backend = etcd({ endpoints: `http://127.0.0.1:${(never.address() as AddressInfo).port}` });
  try {
    const acquired = backend.acquire({ names: ['refused'], ticket: 'process:1', ttl: 60_000 });
    await expect(acquired).rejects.toThrow('gave up after 100 tries');
  } finally {
    await backend.close();
    never.closeAllConnections();
    never.close();
  }
});

it('keeps the order of revisions that need one more digit', async () => {
  await using app = await onEtcd();
  const tokens: number[] = [];
  for (let round = 0; round < 120; round++) {
    tokens.push(await app.locks.withLock(`digits ${round % 3}`, async ({ fencingToken }) => fencingToken));
  }
  expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
  const waiting: string[] = [];
  const held = await app.locks.acquire('digits');
  const apps = await Promise.all(Array.from({ length: 12 }, () => onEtcd()));
  const callers = [];
  for (const [index, each] of apps.entries()) {
    const caller = each.locks.withLock('digits', { wait: 60_000 }, async () => void waiting.push(String(index)));
    callers.push(caller);
    await eventually(async () => (await app.locks.inspect('digits'))?.waiting === index + 1);
  }
  await held.release();
  await Promise.all(callers);
  expect(waiting).toEqual(apps.map((_, index) => String(index)));
  await Promise.all(apps.map((each) => each.close()));
});

it.each([
  ['endpoints', {}, 'Option "endpoints" is undefined; give the URL of a member, or several'],
  ['endpoints', { endpoints: 'localhost:2379' }, 'Option "endpoints" is "localhost:2379"; give the URL of a member'],
  ['endpoints', { endpoints: [] }, 'Option "endpoints" is "[]"; give the URL of a member'],
  ['endpoints', { endpoints: 'http://root:secret@etcd:2379' }, 'Option "endpoints" contains credentials; give them as'],
  ['ttl', { endpoints: 'http://etcd:2379', ttl: 1_500 }, 'Option "ttl" is 1500; give whole seconds, such as \'10s\''],
  ['firstToken', { endpoints: 'http://etcd:2379', firstToken: -1 }, 'Option "firstToken" is -1; give a whole number'],
  ['password', { endpoints: 'http://etcd:2379', username: 'root' }, 'Give "username" and "password", or neither'],
  ['tls', { endpoints: 'http://etcd:2379', tls: { ca: '' } }, 'Option "tls" is given, but an endpoint begins with'],
  ['tls', { endpoints: 'https://etcd:2379', tls: { pfx: '' } }, 'Unknown option "tls.pfx"; give any of ca, cert, key'],
  ['port', { endpoints: 'http://etcd:2379', port: 1 }, 'Unknown option "port"; give any of endpoints, username'],
])('refuses a wrong value of %s', (_, options, message) => {
  const make = () => etcd(options as { endpoints: string });
  expect(make).toThrow(LockConfigError);
  expect(make).toThrow(message);
});

it('shows no password', () => {
  const password = randomUUID();
  const make = () =>
    etcd({ endpoints: 'http://etcd:2379', username: 'root', password: [password] as unknown as string });
  expect(make).toThrow('Option "password" is "(not shown)"; give a text that is not empty');
});
