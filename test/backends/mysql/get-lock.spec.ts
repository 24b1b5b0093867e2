import { randomUUID } from 'node:crypto';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import {
  createConnection as createCallbackConnection,
  createServer as createFront,
  type Connection as Front,
} from 'mysql2';
import { type Connection, createConnection } from 'mysql2/promise';
import { getLock } from 'nest-redis-lock/mysql';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { type LockApp, startLockApp } from '../../support/lock-app.js';
import { type MariadbServer, startMariadbServer } from '../../support/servers/mariadb-server.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

describe('names', () => {
  let server: MariadbServer;
  let admin: Connection;
  let one: LockApp;
  let two: LockApp;
  beforeAll(async () => {
    server = await startMariadbServer();
    admin = await createConnection(server.url);
    one = await startLockApp({ backend: getLock(server.url) });
    two = await startLockApp({ backend: getLock(server.url) });
  }, 60_000);
  afterAll(async () => {
    await Promise.all([one.close(), two.close()]);
    await admin.end();
    await server.stop();
  });

  it('tells a holder that its session was killed without waiting for a renewal, and frees its name', async () => {
    const lock = await one.locks.acquire('killed', { ttl: 60_000, renew: false });
    const aborted = new Promise<number>((resolve) => {
      lock.signal.addEventListener('abort', () => resolve(performance.now()));
    });
    const [rows] = await admin.query('SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()');
    const killedAt = performance.now();
    for (const { id } of rows as { id: number }[]) await admin.query(`KILL CONNECTION ${id}`);
    expect((await aborted) - killedAt).toBeLessThan(4_000);
    expect(lock.held).toBe(false);
    const next = await two.locks.acquire('killed', { wait: 20_000 });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    await next.release();
  });

  it('grants a name once, although a session could take it twice', async () => {
    const lock = await one.locks.acquire('once');
    expect(await one.locks.tryAcquire('once')).toBeNull();
    expect(await two.locks.tryAcquire('once')).toBeNull();
    await lock.release();
    const [[count]] = (await admin.query(
      'SELECT COUNT(*) AS used FROM nest_redis_lock_tokens WHERE IS_USED_LOCK(LOWER(HEX(id))) IS NOT NULL',
    )) as unknown as [[{ used: number }]];
    expect(count.used).toBe(0);
  });

  it('refuses what a session cannot do', async () => {
    await expect(one.locks.acquire('held', { minHold: 100 })).rejects.toThrow('Option "minHold" is 100');
    await expect(one.locks.forceRelease('held')).rejects.toThrow('cannot free a name that another process holds');
  });

  it('passes a name from caller to caller of two processes', async () => {
    let inside = 0;
    const tokens: number[] = [];
    const sell = (app: LockApp) =>
      app.locks.withLock('shared', { wait: 60_000 }, async (lock) => {
        inside += 1;
        expect(inside).toBe(1);
        tokens.push(lock.fencingToken);
        await new Promise((resolve) => setImmediate(resolve));
        inside -= 1;
      });
    await Promise.all(Array.from({ length: 60 }, (_each, index) => sell(index % 2 === 0 ? one : two)));
    expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
    expect(new Set(tokens).size).toBe(60);
  });

  it('leaves no session behind', async () => {
    const app = await startLockApp({ backend: getLock(server.url, { sessions: 3 }) });
    await Promise.all(['a', 'b', 'c', 'd'].map((name) => app.locks.acquire(name)));
    await app.close();
    await eventually(async () => {
      const names = await Promise.all(['a', 'b', 'c', 'd'].map((name) => one.locks.isLocked(name)));
      return !names.includes(true);
    });
  });
});

describe('sessions', () => {
  let server: MariadbServer;
  let admin: Connection;
  const opened: OpenBackend[] = [];
  beforeAll(async () => {
    server = await startMariadbServer();
    admin = await createConnection(server.url);
  }, 60_000);
  afterAll(async () => {
    await Promise.all(opened.map((backend) => backend.close()));
    await admin.end();
    await server.stop();
  });

  function backendOf(url: string, options = {}): OpenBackend {
    const backend = openBackend(getLock(url, { sessions: 1, ...options }));
    opened.push(backend);
    return backend;
  }

  const acquire = (backend: OpenBackend, name: string, ticket = `${randomUUID()}:1`) =>
    backend.acquire({ name, ticket, ttl: 60_000 });

  async function newUser(limits = ''): Promise<{ url: string; sessions: () => Promise<readonly number[]> }> {
    const user = `u${randomUUID().slice(0, 8)}`;
    await admin.query(`CREATE USER ${user}@'%' ${limits}`);
    await admin.query(`GRANT ALL ON test.* TO ${user}@'%'`);
    const sessions = async () => {
      const [rows] = await admin.query(`SELECT id FROM information_schema.processlist WHERE user = '${user}'`);
      return (rows as { id: number }[]).map(({ id }) => id);
    };
    return { url: server.url.replace('root', user), sessions };
  }

  /** What MySQL 8 sends before it ends a session that was idle for `wait_timeout`. */
  function farewell(): Buffer {
    const text = '#HY000The client was disconnected by the server because of inactivity.';
    const body = Buffer.concat([Buffer.from([0xff, 4031 & 255, 4031 >> 8]), Buffer.from(text)]);
    return Buffer.concat([Buffer.from([body.length, 0, 0, 0]), body]);
  }

  /** Passes everything on, but keeps the replies back from the first grant on. */
  async function holdGrants(port: number) {
    const replies: Buffer[] = [];
    const granted = new Gate();
    const ended = new Gate();
    let holder: Socket | undefined;
    const proxy = createServer((client) => {
      const target = connect(port, '127.0.0.1');
      for (const socket of [client, target]) socket.on('error', () => {});
      client.on('data', (chunk) => {
        if (chunk.includes('INSERT INTO `nest_redis_lock_tokens`')) holder ??= client;
        target.write(chunk);
      });
      target.on('data', (chunk) => {
        if (holder !== client) return client.write(chunk);
        replies.push(chunk);
        return granted.open();
      });
      target.on('end', () => (holder === client ? ended.open() : client.end()));
      client.on('close', () => target.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    return {
      url: `mysql://root@127.0.0.1:${(proxy.address() as AddressInfo).port}/test`,
      granted: granted.opened,
      ended: ended.opened,
      flush: (more: Buffer) => {
        holder?.end(Buffer.concat([...replies, more]));
        holder = undefined;
      },
      stop: () => proxy.close(),
    };
  }

  it('has no lock of which it learnt together with the end of its session', async () => {
    const other = backendOf(server.url);
    await other.start?.();
    const proxy = await holdGrants(server.port);
    const backend = backendOf(proxy.url);
    const ticket = `${randomUUID()}:1`;
    const taking = acquire(backend, 'ended', ticket);
    const refused = expect(taking).rejects.toThrow(/The session has ended|did not answer within/);
    await proxy.granted;
    const [[session]] = (await admin.query(
      'SELECT IS_USED_LOCK(LOWER(HEX(id))) AS id FROM nest_redis_lock_tokens WHERE IS_USED_LOCK(LOWER(HEX(id))) > 0',
    )) as unknown as [[{ id: number }]];
    await admin.query(`KILL ${session.id}`);
    await proxy.ended;
    await eventually(async () => (await acquire(other, 'ended', 'other:1')).status === 'granted');
    proxy.flush(farewell());
    await refused;
    expect(await acquire(backend, 'ended', ticket)).toMatchObject({ status: 'busy', owner: 'other:1' });
    expect(await backend.renew([{ name: 'ended', ticket, ttl: 60_000 }])[0]).toEqual({ status: 'not-owner' });
    proxy.stop();
  });

  it('opens no session for calls that wait when it is closed', async () => {
    const user = await newUser();
    const backend = backendOf(user.url);
    await acquire(backend, 'open');
    expect(await user.sessions()).toHaveLength(1);
    const calls = ['a', 'b', 'c'].map((name) => acquire(backend, name));
    const refused = Promise.all(calls.map((call) => expect(call).rejects.toThrow('The backend is closed')));
    await backend.close();
    await refused;
    await eventually(async () => (await user.sessions()).length === 0);
  });

  it('ends the connection of a session that it could not set up', async () => {
    const user = await newUser('WITH MAX_QUERIES_PER_HOUR 1');
    const backend = backendOf(user.url);
    for (let tries = 0; tries < 3; tries += 1) await expect(acquire(backend, 'refused')).rejects.toThrow('max_queries');
    await eventually(async () => (await user.sessions()).length === 0);
  });

  it('keeps the row of a name that is held for longer than rows of unused names stay', async () => {
    const backend = backendOf(server.url, { table: 'swept_tokens', keepRows: 1_000 });
    const ticket = `${randomUUID()}:1`;
    const answer = await acquire(backend, 'long', ticket);
    await acquire(backend, 'short', ticket);
    await backend.release({ name: 'short', ticket });
    const rows = async () => ((await admin.query('SELECT id FROM swept_tokens'))[0] as unknown[]).length;
    await eventually(async () => (await rows()) === 1);
    const tokens = answer.status === 'granted' ? answer.tokens : undefined;
    expect((await backend.inspect({ name: 'long' }))?.fencingToken).toBeGreaterThanOrEqual(tokens?.first ?? Infinity);
    await backend.release({ name: 'long', ticket });
    await eventually(async () => (await rows()) === 0);
  });

  it('shares its names with the backends of its database alone', async () => {
    await admin.query('CREATE DATABASE IF NOT EXISTS staging');
    const [one, two] = [backendOf(server.url), backendOf(server.url)];
    const staging = backendOf(server.url.replace('/test', '/staging'));
    const shared = backendOf(server.url.replace('/test', '/staging'), { table: 'test.nest_redis_lock_tokens' });
    expect(await acquire(one, 'shared')).toMatchObject({ status: 'granted' });
    expect(await acquire(two, 'shared')).toMatchObject({ status: 'busy' });
    expect(await acquire(staging, 'shared')).toMatchObject({ status: 'granted' });
    expect(await acquire(shared, 'shared')).toMatchObject({ status: 'busy' });
  });

  it('refuses a proxy that lends one session to several clients, and serves no call after that', async () => {
    await using proxy = await shareOneSession(server.port);
    const [one, two] = await Promise.all([proxy.url, proxy.url].map((url) => startLockApp({ backend: getLock(url) })));
    let inside = 0;
    for (let round = 0; round < 5; round += 1) {
      const calls = [one!, two!].map(({ locks }) =>
        locks.withLock(`lent:${round}`, { wait: 0 }, async () => {
          expect((inside += 1)).toBe(1);
          await new Promise((resolve) => setImmediate(resolve));
          inside -= 1;
        }),
      );
      for (const outcome of await Promise.allSettled(calls)) {
        const message = expect.stringMatching(/a proxy lets one connection run on several sessions/) as string;
        expect(outcome).toMatchObject({ status: 'rejected', reason: { message } });
      }
    }
    await Promise.all([one!.close(), two!.close()]);
  });
});

/** A proxy whose clients all run their statements in one session of the server. */
async function shareOneSession(port: number): Promise<{ url: string } & AsyncDisposable> {
  const session = createCallbackConnection({ host: '127.0.0.1', port, user: 'root', database: 'test' });
  const front = createFront((client: Front) => {
    const wire = client as unknown as Record<string, (...given: unknown[]) => void> & { sequenceId: number };
    client.on('error', () => {});
    wire['serverHandshake']?.({
      protocolVersion: 10,
      serverVersion: '8.0.30',
      connectionId: 1,
      statusFlags: 2,
      characterSet: 33,
      // Without compression and TLS.
      capabilityFlags: 0x00fff7ff & ~0x820,
      authCallback: (_login: unknown, done: (error: null) => void) => {
        done(null);
        wire.sequenceId = 0;
      },
    });
    const answer = (write: () => void) => {
      wire.sequenceId = 1;
      write();
      wire.sequenceId = 0;
    };
    const run = (sql: string) =>
      session.query({ sql, typeCast: false }, (error, rows, fields) => {
        answer(() => {
          if (error) wire['writeError']?.({ code: 1105, message: error.message });
          else if (!Array.isArray(rows))
            wire['writeOk']?.({ affectedRows: rows.affectedRows, insertId: rows.insertId });
          else wire['writeTextResult']?.(rows.map(textsOf), fields);
        });
      });
    client.on('query', run);
    client.on('stmt_prepare', run);
    client.on('quit', () => (client as unknown as { stream: Socket }).stream.end());
  });
  const listener = Reflect.get(front, '_server') as ReturnType<typeof createServer>;
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  return {
    url: `mysql://root@127.0.0.1:${(listener.address() as AddressInfo).port}/test`,
    [Symbol.asyncDispose]: async () => {
      listener.close();
      session.destroy();
    },
  };
}

function textsOf(row: unknown): Record<string, unknown> {
  const columns = Object.entries(row as Record<string, unknown>);
  return Object.fromEntries(columns.map(([name, value]) => [name, Buffer.isBuffer(value) ? value.toString() : value]));
}
