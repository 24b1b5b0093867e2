import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { LockConfigError } from 'nest-redis-lock';
import type { QueueMessage } from 'nest-redis-lock/backend';
import { etcd } from 'nest-redis-lock/etcd';
import { askEtcd, keysOf } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp } from '../../support/lock-app.js';
import { type EtcdServer, startEtcdServer } from '../../support/servers/etcd-server.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

describe('keys', () => {
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

  const putText = (key: string, value: string) =>
    askEtcd<object>(server.url, '/v3/kv/put', { key: btoa(key), value: btoa(value) });

  it('leaves no key and no lease behind when its application ends', async () => {
    /** All but the number above which tokens begin: that one stays for good. */
    const keysInUse = async () => (await keysOf(server.url)).filter(({ key }) => key !== 'nest-redis-lock/first-token');
    const app = await onEtcd();
    const other = await onEtcd();
    const held = await app.locks.acquire('left behind');
    const waiting = other.locks.acquire('left behind', { wait: 60_000 });
    const keys = await eventually(async () => {
      const present = await keysInUse();
      return present.some(({ key }) => key.includes('/wait/')) ? present : undefined;
    });
    expect(keys.every(({ lease }) => lease !== undefined)).toBe(true);
    await held.release();
    const next = await waiting;
    expect((await keysInUse()).every(({ lease }) => lease !== undefined)).toBe(true);
    await next.release();
    await Promise.all([app.close(), other.close()]);
    expect(await keysInUse()).toEqual([]);
    expect(await askEtcd<{ leases?: unknown }>(server.url, '/v3/lease/leases', {})).not.toHaveProperty('leases');
  });

  it('tells that no message arrives while the watch for them is closed', async () => {
    const told: string[] = [];
    const backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${proxy.port}` }), {
      interrupted: () => told.push('interrupted'),
      reconnected: () => told.push('reconnected'),
    });
    await backend.queue?.listen();
    expect(told).toEqual([]);
    proxy.reset();
    await eventually(() => told.includes('reconnected'));
    expect([told[0], told.at(-1)]).toEqual(['interrupted', 'reconnected']);
    await backend.close();
    expect(told.at(-1)).toBe('reconnected');
  });

  it('releases what a request has taken that was carried out after it was given up', async () => {
    const backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${proxy.port}`, ttl: 2_000 }));
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
    const messages: QueueMessage[] = [];
    const message = (each: QueueMessage) => void messages.push(each);
    const backend = openBackend(etcd({ endpoints: server.url }), { process: 'two-sessions', message });
    try {
      await backend.queue?.listen();
      const ticket = 'two-sessions:1';
      await backend.acquire({ name: 'of this session', ticket, ttl: 10_000 });
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
    const greatest = 3_000_000_000_000_000;
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

  it.each([
    ['its key was deleted', () => deleteKey('lost/first-token')],
    ['somebody wrote a text there', () => putText('lost/first-token', 'many')],
    ['somebody wrote a number there that no token can follow', () => putText('lost/first-token', String(2 ** 60))],
  ])('writes the start of its tokens again after %s', async (_, lose) => {
    const options = { root: 'lost/', firstToken: 1_000_000_000 };
    await using one = await onEtcd(options);
    await using two = await onEtcd(options);
    let last = 0;
    for (let round = 0; round < 2; round += 1) {
      for (const { locks } of [one, two]) {
        const token = await locks.withLock('lost', { wait: 20_000 }, async ({ fencingToken }) => fencingToken);
        expect(token).toBeGreaterThan(last);
        last = token;
      }
      if (round > 0) break;
      const queued = await one.locks.acquire('lost');
      const waiting = two.locks.acquire('lost', { wait: 20_000 });
      await eventually(async () => (await one.locks.inspect('lost'))?.waiting === 1);
      await lose();
      await queued.release();
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(queued.fencingToken);
      last = next.fencingToken;
      await next.release();
      await lose();
    }
  });

  it('gives a request up that is refused again and again', async () => {
    const header = { revision: '7' };
    /** Each condition fails, and no key is there. */
    const answerTo = (path: string | undefined, body: string): object => {
      if (path !== '/v3/kv/txn') return { header, ID: '1', TTL: '10' };
      const { compare, success, failure } = JSON.parse(body) as Record<'compare' | 'success' | 'failure', object[]>;
      const succeeded = compare.length === 0;
      return { header, succeeded, responses: (succeeded ? success : failure).map(() => ({ response_range: {} })) };
    };
    const never = createServer(
      (request, response) =>
        void text(request).then((body) => response.end(JSON.stringify(answerTo(request.url, body)))),
    );
    await new Promise<void>((resolve) => never.listen(0, '127.0.0.1', () => resolve()));
    const backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${(never.address() as AddressInfo).port}` }));
    try {
      const acquired = backend.acquire({ name: 'refused', ticket: 'process:1', ttl: 60_000 });
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
    ['endpoints', { endpoints: ['root:secret@h:1'] }, 'Option "endpoints" is "..."; give the URL of a member'],
    ['endpoints', { endpoints: 'http://root:1/secret@h' }, 'Option "endpoints" is a URL with "@" behind its host'],
    [
      'endpoints',
      { endpoints: 'http://root:secret@etcd:2379' },
      'Option "endpoints" contains credentials; give them as',
    ],
    ['ttl', { endpoints: 'http://etcd:2379', ttl: 1_500 }, 'Option "ttl" is 1500; give whole seconds, such as \'10s\''],
    ['firstToken', { endpoints: 'http://etcd:2379', firstToken: -1 }, 'Option "firstToken" is -1; give a whole number'],
    ['password', { endpoints: 'http://etcd:2379', username: 'root' }, 'Give "username" and "password", or neither'],
    ['tls', { endpoints: 'http://etcd:2379', tls: { ca: '' } }, 'Option "tls" is given, but an endpoint begins with'],
    [
      'tls',
      { endpoints: 'https://etcd:2379', tls: { pfx: '' } },
      'Unknown option "tls.pfx"; give any of ca, cert, key',
    ],
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
});

describe('the sweep', () => {
  /** The key of the owner of a name. */
  const keyOf = (name: string) => `nest-redis-lock/lock//${name}/owner`;
  /** A process sweeps after a third of its session, in s. */
  const SESSION = 3;

  let server: EtcdServer;
  let gateway: Server;
  let backend: OpenBackend;
  /** Loses the reply to the next request of this path: etcd has carried it out. */
  let loseReply: string | undefined;
  /** Runs when etcd has listed the keys of a lease, before the process gets the list. */
  let onList: () => Promise<void>;
  /** Runs before etcd gets a request that deletes a key. */
  let onDelete: () => Promise<void>;
  /** The last request that queues a ticket. */
  let queued: string | undefined;

  beforeAll(async () => {
    server = await startEtcdServer();
    // etcd may end a connection meanwhile, as of a watch.
    gateway = createServer((request, response) => {
      passOn(request, response).catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
  });
  beforeEach(() => {
    onList = async () => {};
    onDelete = async () => {};
    const { port } = gateway.address() as AddressInfo;
    backend = openBackend(etcd({ endpoints: `http://127.0.0.1:${port}`, ttl: `${SESSION}s` }));
  });
  afterEach(() => backend.close());
  afterAll(async () => {
    gateway.close();
    await server.stop();
  });

  async function passOn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'POST', url = '' } = request;
    const sent = await text(request);
    if (sent.includes('delete_range')) await onDelete();
    if (/"failure":\[\{"request_put"/.test(sent)) queued = sent;
    const answer = await fetch(server.url + url, { method, body: sent });
    const body = await answer.text();
    if (url === loseReply) {
      loseReply = undefined;
      request.socket.destroy();
      return;
    }
    if (url === '/v3/lease/timetolive') await onList();
    response.writeHead(answer.status).end(body);
  }

  const ownerOf = async (name: string) => (await keysOf(server.url)).find(({ key }) => key === keyOf(name));

  /** Writes an owner as a request would that etcd carries out late. */
  const own = (name: string, ticket: string, lease: string | undefined) =>
    askEtcd(server.url, '/v3/kv/put', { key: btoa(keyOf(name)), value: btoa(ticket), lease });

  it('keeps the ticket of a requeue that was sent twice', async () => {
    await backend.acquire({ name: 'requeued', ticket: 'process:1', ttl: 10_000 });
    loseReply = '/v3/kv/txn';
    const again = await backend.queue?.requeue({
      name: 'requeued',
      ticket: 'process:1',
      again: 'process:2',
      claim: 1_000,
    });
    expect(again).toEqual({ status: 'not-owner', resent: true });
    const owner = await ownerOf('requeued');
    expect(owner?.value).toBe('process:2');
    await own('unknown', 'process:3', owner?.lease);
    await eventually(async () => !(await ownerOf('unknown')));
    expect((await ownerOf('requeued'))?.value).toBe('process:2');
  });

  it('frees no name that has passed to another process since its key was listed', async () => {
    await backend.acquire({ name: 'own', ticket: 'process:1', ttl: 10_000 });
    const lease = (await ownerOf('own'))?.lease;
    const other = await askEtcd<{ ID: string }>(server.url, '/v3/lease/grant', { TTL: 60 });
    await own('passed on', 'process:2', lease);
    // A later key in the list: the sweep looks at it last.
    await own('unknown', 'process:3', lease);
    onList = async () => void (await own('passed on', 'other:1', other.ID));
    loseReply = '/v3/kv/txn';
    await backend.inspect({ name: 'own' });
    await eventually(async () => !(await ownerOf('unknown')));
    expect(await ownerOf('passed on')).toMatchObject({ value: 'other:1', lease: other.ID });
  });

  it('leaves a name alone that is being released', async () => {
    await backend.acquire({ name: 'own', ticket: 'process:1', ttl: 10_000 });
    const lease = (await ownerOf('own'))?.lease;
    // A later key in the list: the sweep looks at it last.
    await own('unknown', 'process:2', lease);
    let release: Promise<unknown> | undefined;
    onList = () =>
      new Promise((listed) => {
        onList = async () => {};
        onDelete = async () => {
          onDelete = async () => {};
          listed();
          await eventually(async () => !(await ownerOf('unknown')));
        };
        release = Promise.resolve(backend.release({ name: 'own', ticket: 'process:1' }));
      });
    loseReply = '/v3/kv/txn';
    await backend.ping();
    await eventually(async () => !(await ownerOf('unknown')));
    expect(await release).toEqual({ status: 'released', resent: false });
  });

  describe('a request that queues a ticket and is carried out a second time', () => {
    /** Its ticket has been granted the name in the meantime. */
    async function queuedAgain(name: string): Promise<string | undefined> {
      await backend.acquire({ name, ticket: 'process:1', ttl: 10_000 });
      await backend.queue?.enqueue({ name, ticket: 'process:2', ttl: 10_000, claim: 1_000 });
      await backend.release({ name, ticket: 'process:1' });
      const owner = await ownerOf(name);
      expect(owner?.value).toBe('process:2');
      await askEtcd(server.url, '/v3/kv/txn', JSON.parse(queued as string) as object);
      return owner?.lease;
    }

    const keysAbout = async (name: string) => (await keysOf(server.url)).filter(({ key }) => key.includes(`/${name}/`));

    it('leaves nothing behind when the ticket is released', async () => {
      await queuedAgain('twice');
      expect(await keysAbout('twice')).toHaveLength(2);
      const released = await backend.release({ name: 'twice', ticket: 'process:2' });
      expect(released).toEqual({ status: 'released', resent: false });
      expect(await keysAbout('twice')).toEqual([]);
    });

    it('has queued nobody for good when its process knows the ticket no more', async () => {
      const lease = await queuedAgain('late');
      await backend.release({ name: 'late', ticket: 'process:2' });
      await askEtcd(server.url, '/v3/kv/put', { key: btoa(keyOf('late')), value: btoa('other:1') });
      await askEtcd(server.url, '/v3/kv/txn', JSON.parse(queued as string) as object);
      expect(await keysAbout('late')).toMatchObject([{ value: 'other:1' }, { lease }]);
      loseReply = '/v3/kv/txn';
      await backend.ping();
      await eventually(async () => (await keysAbout('late')).length === 1);
      expect((await ownerOf('late'))?.value).toBe('other:1');
    });
  });
});

it('opens one session where those who learn of the end of the last one ask at once', async () => {
  await using server = await startEtcdServer();
  const lost = () => void (again ??= acquire('again'));
  const backend = openBackend(etcd({ endpoints: server.url, ttl: '2s' }), { lost });
  const acquire = (name: string) => backend.acquire({ name, ticket: `process:${name}`, ttl: 10_000 });
  let again: ReturnType<typeof acquire> | undefined;
  try {
    await acquire('lost');
    // A freeze beyond the session: its end is noticed by the next call.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_100);
    expect(await acquire('next')).toMatchObject({ status: 'granted' });
    expect(await again).toMatchObject({ status: 'granted' });
    await eventually(async () => {
      const { leases = [] } = await askEtcd<{ leases?: object[] }>(server.url, '/v3/lease/leases', {});
      return leases.length === 1;
    });
    const locks = (await keysOf(server.url)).filter(({ key }) => key.includes('/lock/'));
    expect(locks.map(({ key }) => key.split('/').at(-2))).toEqual(['again', 'next']);
    expect(new Set(locks.map(({ lease }) => lease)).size).toBe(1);
  } finally {
    await backend.close();
  }
});
