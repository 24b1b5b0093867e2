import { jest } from '@jest/globals';
import { createClient } from '@redis/client';
import { Redis } from 'ioredis';
import { IdempotencyService, redis, type RedisConnection, ScheduledJobs, SemaphoreService } from 'nest-redis-lock';
import { redlock } from 'nest-redis-lock/redlock';
import type { LockStore, Pending, RenewAnswer } from '../../../../lib/contracts/lock-backend.js';
import type {
  EnterRequest,
  EnterRunRequest,
  IdempotencyStore,
  LeaveRequest,
  PrimitiveStoreProvider,
  RunRecords,
} from '../../../../lib/contracts/primitive-stores.js';
import { LockBackends } from '../../../../lib/lock/line/lock-backends.js';
import { PrimitiveRuntime } from '../../../../lib/primitives/runtime.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { Gate } from '../../../support/gate.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { server, startRedis } from '../../../support/one-redis.js';
import { RecordedEvents } from '../../../support/recorded-events.js';
import { openBackend, type OpenBackend } from '../../../support/open-backend.js';

const never = () => Promise.reject(new Error('the method ran again'));
const numberOf = async ({ attempt }: { readonly attempt: number }) => attempt;

let client: Redis;
let number = 0;
let key: string;

// Before the server stops.
afterAll(() => client.quit());
startRedis();
beforeAll(() => {
  client = new Redis(server.url);
});
beforeEach(() => {
  key = `key${++number}`;
});

describe('the requests of an idempotent call', () => {
  let backend: OpenBackend & PrimitiveStoreProvider;
  let results: Required<IdempotencyStore>;
  beforeAll(() => {
    backend = openBackend(redis(server.url)) as OpenBackend & PrimitiveStoreProvider;
    results = backend.openPrimitiveStores(undefined).results as Required<IdempotencyStore>;
  });
  afterAll(() => backend.close());

  const enter = async (ticket: string, fingerprint = '', claim?: number) => {
    const lock = { name: `idempotency:${key}`, ticket, ttl: 60_000, claim };
    const request: EnterRequest = { key, fingerprint, ttl: 120_000, lock };
    return results.enter(request);
  };
  const leave = async (ticket: string, token: number, payload = 'made') => {
    const record = { state: 'value', token, attempt: 1, fingerprint: '', payload } as const;
    const lock = { name: `idempotency:${key}`, ticket, rest: 0 };
    const request: LeaveRequest = { key, record, ttl: 60_000, evenIfForgotten: true, lock };
    return results.leave(request);
  };
  const entered = async (ticket: string, fingerprint?: string) => {
    const answer = await enter(ticket, fingerprint);
    if (answer.status !== 'granted' || !answer.begun) throw new Error(`it was ${answer.status}`);
    return answer.begun;
  };
  const owner = () => client.get(`lock:{idempotency:${key}}`);

  it('wait in the queue behind another attempt, and begin none', async () => {
    const { token } = await entered('a:1');
    expect(await enter('b:1')).toMatchObject({ status: 'busy', owner: 'a:1', first: false });
    expect(await enter('b:2', '', 1_000)).toMatchObject({ status: 'busy', owner: 'a:1', first: true });
    expect(await results.read(key)).toMatchObject({ token, attempt: 1 });
  });

  it('begin a next attempt with a token above that of the record, although the fence was lost', async () => {
    const { token } = await entered('a:1', 'aa');
    const later = token + 3_600_000_000;
    await client.set(`lock:{idempotency:${key}}:result`, `r ${later} 2 aa\n`, 'PX', 60_000);
    await client.del(`lock:{idempotency:${key}}`, `lock:{idempotency:${key}}:fence`);
    expect(await entered('b:1')).toMatchObject({ token: later + 1, attempt: 3, fingerprint: 'aa' });
    const minted = await backend.mint({ name: `idempotency:${key}`, ticket: 'b:1', leastToken: 0 });
    expect(minted?.first).toBeGreaterThan(later + 1);
  });

  it('hand the lock to the next in the queue as they free it', async () => {
    const { token } = await entered('a:1');
    const messages = new Redis(server.url);
    await messages.subscribe('lock:process:b');
    await enter('b:1', '', 1_000);
    await leave('a:1', token);
    expect(await owner()).toBe('b:1');
    messages.disconnect();
  });

  it('fail for a record of another kind, and take no lock', async () => {
    await client.set(`lock:{idempotency:${key}}:result`, 'what another program wrote');
    await expect(enter('a:1')).rejects.toThrow('holds data that this library did not write');
    expect(await owner()).toBeNull();
  });
});

describe('a call in two requests', () => {
  let app: LockApp;
  let store: LockStore;
  let service: IdempotencyService;
  let results: Required<IdempotencyStore>;
  let asIs: Pick<IdempotencyStore, 'enter' | 'leave'>;
  beforeAll(async () => {
    app = await startLockApp({ backend: redis(server.url) });
    ({ store } = app.app.get(LockBackends).main.calls);
    service = app.app.get(IdempotencyService);
    results = app.app.get(PrimitiveRuntime).home('Idempotent methods').stores.results as Required<IdempotencyStore>;
    const { enter, leave } = results;
    asIs = { enter, leave };
  });
  afterEach(() => {
    Object.assign(results, asIs);
    expect(app.logger.lines).toEqual([]);
  });
  afterAll(() => app.close());

  it('is not lost to a renewal that finds the lock freed by its last request', async () => {
    const [asked, refused, renew] = [new Gate(), new Gate(), store.renew.bind(store)];
    using events = new RecordedEvents(['lost', 'released']);
    const answerOf = (sent: Pending<RenewAnswer>) =>
      new Promise<RenewAnswer>((resolve, reject) => {
        sent.then((answer) => {
          resolve(answer);
          // After the watchdog has read it.
          if (answer.status === 'not-owner') setImmediate(() => refused.open());
        }, reject);
      });
    store.renew = (requests) => renew(requests).map(answerOf);
    Object.assign(results, {
      leave: async (request: LeaveRequest) => {
        const answer = await asIs.leave?.(request);
        asked.open();
        await refused.opened;
        return answer;
      },
    });
    expect(await service.run(key, { lease: 900 }, async () => 'made')).toBe('made');
    await asked.opened;
    store.renew = renew;
    expect(events.names).toEqual(['released']);
    expect(await service.run(key, {}, never)).toBe('made');
  });

  it('asks again if its last request is not answered, and is not lost to what that one did', async () => {
    using events = new RecordedEvents(['lost', 'released']);
    let times = 0;
    Object.assign(results, {
      leave: async (request: LeaveRequest) => {
        const answer = await asIs.leave?.(request);
        if (++times === 1) throw new Error('the connection is gone');
        return answer;
      },
    });
    expect(await service.run(key, {}, async () => 'made')).toBe('made');
    expect([times, events.names]).toEqual([2, ['released']]);
  });

  it('keeps its result alone while another call of its process waits for the lock', async () => {
    const [began, gate] = [new Gate(), new Gate()];
    let left = 0;
    Object.assign(results, { leave: async () => (left++, never()) });
    const first = service.run(key, {}, async () => {
      began.open();
      await gate.opened;
      return 'made';
    });
    await began.opened;
    using events = new RecordedEvents(['contended']);
    const second = service.run(key, {}, never);
    await eventually(() => events.names.length === 1);
    gate.open();
    expect([await first, await second, left]).toEqual(['made', 'made', 0]);
  });

  it('takes its attempt back if its caller leaves before the answer', async () => {
    const [sent, gate, left] = [new Gate(), new Gate(), new AbortController()];
    const forget = results.forget.bind(results);
    const forgotten = new Gate();
    Object.assign(results, {
      enter: async (request: EnterRequest) => {
        const answer = await asIs.enter?.(request);
        sent.open();
        await gate.opened;
        return answer;
      },
      forget: async (request: Parameters<typeof forget>[0]) => {
        await forget(request);
        forgotten.open();
      },
    });
    const call = service.run(key, { signal: left.signal }, never);
    await sent.opened;
    left.abort(new Error('the client left'));
    await expect(call).rejects.toThrow('the client left');
    gate.open();
    await forgotten.opened;
    Object.assign(results, asIs, { forget });
    expect(await service.run(key, {}, numberOf)).toBe(1);
  });

  it('tells of its lock only if it needs one, in the order of what happens', async () => {
    using events = new RecordedEvents(['attempt', 'acquired', 'released', 'failed', 'timedOut']);
    await service.run(key, {}, async () => 'made');
    expect(events.names).toEqual(['attempt', 'acquired', 'released']);
    await service.run(key, {}, never);
    Object.assign(results, { enter: () => Promise.reject(new Error('Redis is away')) });
    await expect(service.run(`${key} away`, {}, never)).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
    expect(events.names).toEqual(['attempt', 'acquired', 'released']);
  });

  it('has no record of a job whose first request failed', async () => {
    const jobs = app.app.get(ScheduledJobs);
    const { runs } = app.app.get(PrimitiveRuntime).home('Records of scheduled jobs').stores;
    const { enter, forget } = runs as Required<RunRecords>;
    const forgotten = new Gate();
    Object.assign(runs, {
      enter: async (request: EnterRunRequest) => {
        await enter(request);
        throw new Error('the connection is gone');
      },
      forget: async (request: Parameters<typeof forget>[0]) => {
        await forget(request);
        forgotten.open();
      },
    });
    const options = { atMostFor: '1m', atLeastFor: 0 } as const;
    await expect(jobs.run(key, options, never)).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    await forgotten.opened;
    Object.assign(runs, { enter, forget });
    expect(await jobs.lastRun(key)).toBeNull();
  });
});

describe('a client that the application ends before the module', () => {
  /** How long (ms) an application that ends repeats the release of what it was refused. */
  const REFUSED = 2_000;

  type Given = readonly [client: RedisConnection, end: () => unknown];
  const ofIoredis = (): Given => {
    const given = new Redis(server.url);
    return [given, () => given.quit()];
  };
  const ofNodeRedis = async (): Promise<Given> => {
    const given = createClient({ url: server.url });
    await given.connect();
    return [given, () => given.close()];
  };

  it.each([
    ['ioredis', ofIoredis],
    ['node-redis', ofNodeRedis],
  ])('gives back what the application holds over a connection of its own: %s', async (_library, open) => {
    const [given, end] = await open();
    const app = await startLockApp({ redis: given, shutdownGrace: 0, cache: false });
    await app.locks.acquire(key, { ttl: '1h' });
    await app.locks.acquire([`${key}1`, `${key}2`], { ttl: '1h' });
    await app.app.get(SemaphoreService).acquire(key, { permits: 1, ttl: '1h' });
    await end();
    await app.close();
    await using next = await startLockApp({ redis: server.url, cache: false });
    for (const name of [key, `${key}1`, `${key}2`]) expect(await next.locks.isLocked(name)).toBe(false);
    expect(await next.app.get(SemaphoreService).available(key, { permits: 1 })).toBe(1);
  });

  it('is renewed and released with, but its Redlock node grants nothing', async () => {
    const [given, end] = ofIoredis();
    await using app = await startLockApp({ backend: redlock([given], { anyCount: true }), cache: false });
    const lock = await app.locks.acquire(key, { ttl: '1h' });
    await end();
    await eventually(() => (given as Redis).status === 'end');
    await lock.extend(7_200_000);
    await lock.release();
    expect(await client.exists(`lock:{${key}}`)).toBe(0);
    await expect(app.locks.acquire(key, { wait: 0 })).rejects.toThrow('a client that the application has ended');
  });

  it('gets no heartbeat after QUIT, whose failure it would print', async () => {
    const [quitting, other] = [new Redis(server.port), new Redis(server.port)];
    await using one = await startLockApp({ redis: quitting, cache: false });
    await using two = await startLockApp({ redis: other, cache: false });
    // Messages arrive where somebody waits.
    for (const { locks } of [one, two]) {
      const held = await locks.acquire(`${key}:waited`);
      const waiting = locks.acquire(`${key}:waited`, { wait: 60_000 });
      await held.release();
      await (await waiting).release();
    }
    const [ofQuitting, ofOther] = [jest.spyOn(quitting, 'publish'), jest.spyOn(other, 'publish')];
    await eventually(() => ofQuitting.mock.calls.length > 0);
    // As between QUIT and its answer.
    Reflect.set(quitting, 'manuallyClosing', true);
    ofQuitting.mockClear();
    ofOther.mockClear();
    // Both send one in a second.
    await eventually(() => ofOther.mock.calls.length > 2);
    expect(ofQuitting).not.toHaveBeenCalled();
    Reflect.set(quitting, 'manuallyClosing', false);
    void quitting.quit();
    expect(Reflect.get(quitting, 'manuallyClosing')).toBe(true);
    await eventually(() => quitting.status === 'end');
    other.disconnect();
  });

  it('is replaced again once its server is back, however often the application asks', async () => {
    const proxy = await FaultProxy.start(server.port);
    const given = new Redis({ port: proxy.port, retryStrategy: () => null });
    given.on('error', () => {});
    await using app = await startLockApp({ redis: given, cache: false });
    const lock = await app.locks.acquire(key, { ttl: '1h' });
    const extended = () =>
      lock.extend(7_200_000).then(
        () => true,
        () => false,
      );
    proxy.refuse();
    await eventually(() => given.status === 'end');
    expect(await extended()).toBe(false);
    proxy.accept();
    await eventually(extended, { every: 50, within: 10_000 });
    await lock.release();
    expect(await client.exists(`lock:{${key}}`)).toBe(0);
    await proxy.stop();
  });

  it('fails each call where it cannot be replaced', async () => {
    const [given, end] = ofIoredis();
    await using app = await startLockApp({ redis: given, cache: false, commandTimeout: REFUSED });
    await app.locks.withLock(key, async () => {});
    (given as Redis).duplicate = () => {
      throw new Error('no copy');
    };
    await end();
    await eventually(() => (given as Redis).status === 'end');
    for (const name of ['a', 'b']) {
      await expect(app.locks.acquire(`${key}${name}`, { wait: 0 })).rejects.toThrow(
        /failed: Redis at .*closed for good/,
      );
    }
  });

  it('is not replaced where it was never connected', async () => {
    await using app = await startLockApp({
      redis: createClient({ url: server.url }),
      cache: false,
      commandTimeout: REFUSED,
    });
    await expect(app.locks.acquire(key, { wait: 0 })).rejects.toThrow('its client is not open');
  });
});
