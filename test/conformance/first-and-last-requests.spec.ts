import { randomUUID } from 'node:crypto';
import type {
  EnterRequest,
  EnterRunRequest,
  IdempotencyStore,
  LeaveRequest,
  LeaveRunRequest,
  RunRecords,
} from '../../lib/contracts/primitive-stores.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { apps, eachPrimitiveBackend } from './each-primitive-backend.js';

/** Above all that a store mints for years. */
const LATER = 8_000_000_000_000_000;

let key: string;
let ticket: (process: string) => string;
beforeEach(() => {
  key = randomUUID();
  ticket = (process) => `${process}-${key}:1`;
});

const ownerOf = async (name: string) => (await apps[0].locks.inspect(name))?.owner ?? null;

eachPrimitiveBackend('the first and the last request of an idempotent call', () => {
  let results: Required<IdempotencyStore>;
  let name: string;
  beforeAll(() => {
    const { stores } = apps[0].app.get(PrimitiveRuntime, { strict: false }).home('Idempotent methods');
    results = stores.results as Required<IdempotencyStore>;
  });
  beforeEach(() => {
    name = `idempotency:${key}`;
  });

  const enter = async (by: string, fingerprint = '', claim?: number) => {
    const request: EnterRequest = { key, fingerprint, ttl: 120_000, lock: { name, ticket: by, ttl: 60_000, claim } };
    return results.enter(request);
  };
  const entered = async (by: string, fingerprint?: string) => {
    const answer = await enter(by, fingerprint);
    if (answer.status !== 'granted' || !answer.begun) throw new Error(`it was ${answer.status}`);
    return answer.begun;
  };
  const leave = async (by: string, token: number, payload = 'made') => {
    const record = { state: 'value', token, attempt: 1, fingerprint: '', payload } as const;
    const request: LeaveRequest = {
      key,
      record,
      ttl: 60_000,
      evenIfForgotten: true,
      lock: { name, ticket: by, rest: 0 },
    };
    return results.leave(request);
  };
  const owner = () => ownerOf(name);
  const lost = () => apps[0].locks.forceRelease(name);
  const kept = async () => (await results.read(key))?.payload.toString();

  it('take the lock and begin, then keep the result and free the lock', async () => {
    const begun = await entered(ticket('a'), 'aa');
    expect(begun).toMatchObject({ state: 'running', attempt: 1, fingerprint: 'aa' });
    expect([await owner(), (await results.read(key))?.token]).toEqual([ticket('a'), begun.token]);
    expect(await leave(ticket('a'), begun.token)).toEqual({ kept: true, status: 'released', resent: false });
    expect([await owner(), await kept()]).toEqual([null, 'made']);
  });

  it('answer a kept result, and another fingerprint, and leave the lock alone', async () => {
    const { token } = await entered(ticket('a'), 'aa');
    expect(await enter(ticket('b'), 'bb', 1_000)).toMatchObject({ status: 'answered', record: { token } });
    await leave(ticket('a'), token);
    expect(await enter(ticket('c'), 'aa', 1_000)).toMatchObject({ status: 'answered', record: { state: 'value' } });
    expect(await owner()).toBeNull();
  });

  it('are answered again as before if they are sent twice', async () => {
    const begun = await entered(ticket('a'), 'aa');
    const tokens = { first: begun.token, count: 1 };
    expect(await enter(ticket('a'), 'aa')).toMatchObject({ status: 'granted', tokens, begun });
    await leave(ticket('a'), begun.token);
    expect(await leave(ticket('a'), begun.token, 'again')).toMatchObject({ kept: true, status: 'gone' });
    expect(await kept()).toBe('made');
  });

  it('begin nothing while another attempt has the lock', async () => {
    const { token } = await entered(ticket('a'));
    expect(await enter(ticket('b'))).toMatchObject({ status: 'busy', owner: ticket('a') });
    expect(await results.read(key)).toMatchObject({ token, attempt: 1 });
  });

  it('begin nothing that comes late, after its ticket was granted the lock by another request', async () => {
    await apps[0].locks.withLock(name, async (lock) => {
      await results.begin({ key, token: lock.fencingToken, fingerprint: '', ttl: 60_000 });
      const answer = await enter(lock.owner);
      expect(answer).toMatchObject({ status: 'granted' });
      expect(answer).not.toHaveProperty('begun');
      expect(await results.read(key)).toMatchObject({ token: lock.fencingToken, attempt: 1 });
    });
  });

  it('begin a next attempt with a token above that of the record, whatever the lock minted before', async () => {
    await results.begin({ key, token: LATER, fingerprint: 'aa', ttl: 60_000 });
    const begun = await entered(ticket('a'));
    expect(begun).toMatchObject({ attempt: 2, fingerprint: 'aa' });
    expect(begun.token).toBeGreaterThan(LATER);
  });

  it('keep no result once a later attempt has begun, and free only their own lock', async () => {
    const first = await entered(ticket('a'));
    await lost();
    const { token } = await entered(ticket('b'));
    expect(await leave(ticket('a'), first.token, 'late')).toMatchObject({ kept: false, status: 'taken' });
    expect([await owner(), (await results.read(key))?.token]).toEqual([ticket('b'), token]);
  });

  it('are taken back by their ticket, once', async () => {
    const first = await entered(ticket('a'), 'aa');
    await lost();
    await entered(ticket('b'));
    await results.forget({ key, ticket: ticket('a') });
    expect(await results.read(key)).toMatchObject({ attempt: 2 });
    for (let time = 1; time <= 2; time++) {
      await results.forget({ key, ticket: ticket('b') });
      expect(await results.read(key)).toMatchObject({ state: 'running', attempt: 1, fingerprint: 'aa' });
    }
    expect((await results.read(key))?.token).toBeGreaterThanOrEqual(first.token);
  });

  it('leave nothing of a first attempt that is taken back', async () => {
    await entered(ticket('a'));
    await results.forget({ key, ticket: ticket('a') });
    expect(await results.read(key)).toBeNull();
  });
});

eachPrimitiveBackend('the first and the last request of a scheduled job', () => {
  let runs: Required<RunRecords>;
  beforeAll(() => {
    const { stores } = apps[0].app.get(PrimitiveRuntime, { strict: false }).home('Records of scheduled jobs');
    runs = stores.runs as Required<RunRecords>;
  });

  const run = { by: 'one', atMostFor: 60_000 };
  const enter = async (by: string) => {
    const request: EnterRunRequest = { ...run, name: key, lock: { name: key, ticket: by, ttl: 60_000 } };
    return runs.enter(request);
  };
  const entered = async (by: string) => {
    const answer = await enter(by);
    if (answer.status !== 'granted' || !answer.recorded) throw new Error(`it was ${answer.status}`);
    return answer.tokens.first;
  };
  const leave = async (by: string, token: number, rest = 0, succeeded = true) => {
    const lock = { name: key, ticket: by, rest };
    const request: LeaveRunRequest = { ...run, name: key, token, took: 5, succeeded, lock };
    return runs.leave(request);
  };
  const lost = () => apps[0].locks.forceRelease(key);

  it('take the name and record the run, then record its end and free the name', async () => {
    const token = await entered(ticket('a'));
    expect(await runs.last(key)).toMatchObject({ token, by: 'one', end: undefined, overdue: false });
    expect(await enter(ticket('b'))).toMatchObject({ status: 'busy', owner: ticket('a') });
    expect(await leave(ticket('a'), token)).toEqual({ status: 'released', resent: false, recorded: true });
    expect(await runs.last(key)).toMatchObject({ token, end: { succeeded: true } });
    expect(await ownerOf(key)).toBeNull();
    expect(await entered(ticket('c'))).toBeGreaterThan(token);
  });

  it('keep the name for the rest of its time', async () => {
    const token = await entered(ticket('a'));
    expect(await leave(ticket('a'), token, 30_000, false)).toMatchObject({ status: 'released', recorded: true });
    expect(await runs.last(key)).toMatchObject({ token, end: { succeeded: false } });
    const info = await apps[0].locks.inspect(key);
    expect(info?.owner).toBe(ticket('a'));
    expect(info?.ttl).toBeLessThanOrEqual(30_000);
  });

  it('are answered again as before if they are sent twice', async () => {
    const token = await entered(ticket('a'));
    expect(await entered(ticket('a'))).toBe(token);
    await leave(ticket('a'), token);
    expect(await leave(ticket('a'), token, 0, false)).toMatchObject({ status: 'gone', recorded: false });
    expect(await runs.last(key)).toMatchObject({ token, end: { succeeded: true } });
  });

  it('record no end for a run that lost its name to another one', async () => {
    const first = await entered(ticket('a'));
    await lost();
    const token = await entered(ticket('b'));
    expect(await leave(ticket('a'), first)).toMatchObject({ status: 'taken', recorded: false });
    expect(await runs.last(key)).toMatchObject({ token, end: undefined });
  });

  it('record a run with a token above that of the record, whatever the lock minted before', async () => {
    await runs.end({ ...run, name: key, token: LATER, took: 1, succeeded: true });
    expect(await entered(ticket('a'))).toBeGreaterThan(LATER);
  });

  it('are taken back: the run before is the last one again, until another one has begun', async () => {
    const first = await entered(ticket('a'));
    await leave(ticket('a'), first);
    const before = await runs.last(key);
    await entered(ticket('b'));
    for (let time = 1; time <= 2; time++) {
      await runs.forget({ name: key, ticket: ticket('b') });
      expect(await runs.last(key)).toEqual(before);
    }
    await lost();
    const later = (await entered(ticket('c'))) + 1;
    await runs.begin({ ...run, name: key, token: later });
    await runs.forget({ name: key, ticket: ticket('c') });
    expect(await runs.last(key)).toMatchObject({ token: later });
  });

  it('leave no record of a first run that never began', async () => {
    await entered(ticket('a'));
    await runs.forget({ name: key, ticket: ticket('a') });
    expect(await runs.last(key)).toBeNull();
  });
});
