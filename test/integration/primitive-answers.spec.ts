import {
  LockBackendError,
  memory,
  PrimitiveBackendError,
  PrimitiveConfigError,
  type LockBackend,
} from 'nest-redis-lock';
import { testServices, type TestServices } from 'nest-redis-lock/testing';
import type { PrimitiveStores } from '../../lib/contracts/primitive-stores.js';
import { eventually } from '../support/eventually.js';
import { withMembers } from '../support/open-backend.js';
import { primitivesWith, replacingPrimitives } from '../support/primitives-with.js';

type Store = Exclude<keyof PrimitiveStores, 'close'>;
type Use = (services: TestServices) => Promise<unknown>;

/** A backend of which one call answers what the contract does not have. */
function answeringWrong(store: Store, call: string, answer: unknown): LockBackend {
  return primitivesWith({ [store]: { [call]: async () => answer } });
}

const RECORD = { state: 'value', token: 1, attempt: 1, fingerprint: '', payload: Buffer.from('1') };
const GRANT = { status: 'granted', tokens: { first: 1, count: 1 }, remaining: 1_000, waiting: 0 };

const permit: Use = ({ semaphores }) => semaphores.acquire('pool', { permits: 2, wait: 0 });
const available: Use = ({ semaphores }) => semaphores.available('pool');
const define: Use = ({ latches }) => latches.define('import', { count: 2, ttl: '1m' });
const arrive: Use = ({ latches }) => latches.countDown('import');
const look: Use = ({ latches }) => latches.count('import');
const take: Use = ({ rateLimits }) => rateLimits.take('user', { limit: 5, per: '1s', onFailure: 'closed' });
const peek: Use = ({ rateLimits }) => rateLimits.peek('user', { limit: 5, per: '1s', onFailure: 'closed' });
const hit: Use = ({ rateLimits }) =>
  rateLimits.throttlerStorage({ onFailure: 'closed' }).increment('user', 1, 1, 1, 'x');
const once: Use = ({ idempotency }) => idempotency.run('payment', { lease: '1s' }, async () => 'paid');
const job: Use = ({ jobs }) => jobs.run('report', { atMostFor: '1m', atLeastFor: 0 }, async () => 'done');
const lastRun: Use = ({ jobs }) => jobs.lastRun('report');

describe('what a store of primitives answers beside its contract fails the call that asked', () => {
  it.each<[Store, string, unknown, Use]>([
    ['semaphores', 'acquire', { status: 'granted', fencingToken: 1, tokens: 1 }, permit],
    ['semaphores', 'acquire', { status: 'given' }, permit],
    ['semaphores', 'acquire', undefined, permit],
    ['semaphores', 'use', { permits: '2', taken: 0 }, available],
    ['latches', 'define', { count: 2 }, define],
    ['latches', 'arrive', { count: 2, remaining: '1' }, arrive],
    ['latches', 'look', 'open', look],
    ['rateLimits', 'take', true, take],
    ['rateLimits', 'take', { granted: '1', used: [0] }, take],
    ['rateLimits', 'take', { granted: 1, used: [] }, take],
    ['rateLimits', 'take', { granted: 1_000, used: [0] }, take],
    ['rateLimits', 'take', { granted: -1, used: [0] }, take],
    ['rateLimits', 'peek', [Number.NaN], peek],
    ['rateLimits', 'hit', { hits: 1, left: 1 }, hit],
    ['results', 'enter', { status: 'answered' }, once],
    ['results', 'enter', { status: 'answered', record: { ...RECORD, payload: 'text' } }, once],
    ['results', 'enter', { ...GRANT, begun: { ...RECORD, state: 'begun' } }, once],
    ['runs', 'enter', { status: 'granted' }, job],
    ['runs', 'last', { token: 1 }, lastRun],
  ])('%s.%s: %j', async (store, call, answer, use) => {
    const services = testServices({ backend: answeringWrong(store, call, answer) });
    await expect(use(services)).rejects.toThrow(/it answered/);
    const error: unknown = await use(services).catch((failure: unknown) => failure);
    expect(error instanceof PrimitiveBackendError || error instanceof LockBackendError).toBe(true);
    await services.close();
  });

  it.each([undefined, {}, { kept: 'yes' }])(
    'a result of which it answers %j is not known to be kept',
    async (answer) => {
      const services = testServices({ backend: answeringWrong('results', 'leave', answer) });
      await expect(once(services)).rejects.toThrow(/it answered/);
      await services.close();
    },
  );
});

it.each([true, { nextEnd: 1, lastToken: 0 }, { states: [null], nextEnd: 1, lastToken: 0 }])(
  'a waiter lives through heartbeats that are answered by %j',
  async (answer) => {
    let beats = 0;
    const backend = replacingPrimitives(memory(), ({ semaphores }) => ({
      semaphores: {
        beat: async (request) => (++beats < 3 ? (answer as never) : semaphores.beat(request)),
        listen() {},
      },
    }));
    const services = testServices({ backend });
    const held = await services.semaphores.acquire('pool', { permits: 1 });
    const waiting = services.semaphores.acquire('pool', { permits: 1, wait: '1m' });
    await eventually(() => beats > 0);
    await held.release();
    await (await waiting).release();
    await services.close();
  },
);

it('a waiter learns why none of its heartbeats is answered', async () => {
  const backend = primitivesWith({
    semaphores: { beat: async () => ({ states: [], nextEnd: 1, lastToken: 0 }), listen() {} },
  });
  const services = testServices({ backend });
  const held = await services.semaphores.acquire('pool', { permits: 1 });
  const refusal = async () => {
    const taking = services.semaphores.acquire('pool', { permits: 1, wait: 1_000 });
    return taking.then(
      () => 'granted',
      (error: Error) => error.message,
    );
  };
  await eventually(async () => /it answered/.test(await refusal()));
  await held.release();
  await services.close();
});

it.each(['60000', {}])('a permit is not held by a renewal that is answered by %j', async (answer) => {
  const services = testServices({ backend: answeringWrong('semaphores', 'renew', answer) });
  const held = await services.semaphores.acquire('pool', { permits: 1, ttl: 300 });
  await eventually(() => !held.held);
  await held.release().catch(() => {});
  await services.close();
});

it('a permit is not known to be lost by a release that is answered by {}', async () => {
  const services = testServices({ backend: answeringWrong('semaphores', 'release', {}) });
  const held = await services.semaphores.acquire('pool', { permits: 1, ttl: 1_000 });
  await held.release();
  await services.close();
});

it.each([undefined, { fencingToken: 2 ** 52, tokens: 1 }, { fencingToken: '9', tokens: 1, remaining: 9 }])(
  'a message of a grant that is none is dropped: %j',
  async (grant) => {
    let tell: ((ticket: string, grant: never) => void) | undefined;
    const tickets: string[] = [];
    const backend = replacingPrimitives(memory(), ({ semaphores }) => ({
      semaphores: {
        acquire: (request) => {
          tickets.push(request.ticket);
          return semaphores.acquire(request);
        },
        listen: (listener) => {
          tell = listener.onGrant;
          semaphores.listen(listener);
        },
      },
    }));
    const services = testServices({ backend });
    const held = await services.semaphores.acquire('pool', { permits: 1 });
    const waiting = services.semaphores.acquire('pool', { permits: 1, wait: '1m' });
    await eventually(() => tell !== undefined && tickets.length === 2);
    for (const ticket of tickets) tell?.(ticket, grant as never);
    tell?.(undefined as never, { fencingToken: 2 ** 52, tokens: 1, remaining: 9 } as never);
    await held.release();
    expect((await waiting).fencingToken).toBeGreaterThan(held.fencingToken);
    await (await waiting).release();
    expect(tickets).toHaveLength(2);
    await services.close();
  },
);

it.each([undefined, Promise.resolve({}), {}])(
  'refuses a backend that opens %p in the place of stores',
  async (opened) => {
    const backend = withMembers(memory(), { openPrimitiveStores: () => opened });
    const services = testServices({ backend });
    await expect(permit(services)).rejects.toThrow(PrimitiveConfigError);
    await expect(permit(services)).rejects.toThrow('openPrimitiveStores(prefix) returned');
    await services.close();
  },
);
