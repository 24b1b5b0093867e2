import type { IdempotencyStore } from '../../lib/contracts/primitive-stores.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { eachIdempotency, key, one } from './each-idempotency.js';

/** What holds if requests come twice, late, or out of order. */
eachIdempotency(() => {
  let store: IdempotencyStore;
  beforeAll(() => {
    store = one.app.get(PrimitiveRuntime, { strict: false }).home('Idempotent methods').stores.results;
  });

  const begin = async (token: number, fingerprint = '') => store.begin({ key, token, fingerprint, ttl: 60_000 });
  const keep = async (token: number, payload: string, evenIfForgotten = true) => {
    const record = { state: 'value', token, attempt: 1, fingerprint: '', payload } as const;
    return store.keep({ key, record, ttl: 60_000, evenIfForgotten });
  };
  const kept = async () => (await store.read(key))?.payload.toString();

  it('a begin that is sent twice counts once', async () => {
    for (let time = 1; time <= 2; time++)
      expect(await begin(5)).toMatchObject({ state: 'running', token: 5, attempt: 1 });
    expect(await begin(7)).toMatchObject({ token: 7, attempt: 2 });
  });

  it('a begin that arrives after a later one changes nothing', async () => {
    await begin(7);
    expect(await begin(5)).toMatchObject({ token: 7, attempt: 1 });
    expect(await store.read(key)).toMatchObject({ token: 7, attempt: 1 });
  });

  it('a begin that arrives after a result changes nothing', async () => {
    await begin(5);
    await keep(5, 'first');
    for (const token of [4, 5, 6]) expect(await begin(token)).toMatchObject({ state: 'value', token: 5 });
    expect(await kept()).toBe('first');
  });

  it('a later attempt has the fingerprint of the first that gave one, and no other', async () => {
    await begin(5);
    expect(await begin(6, 'aa')).toMatchObject({ token: 6, fingerprint: 'aa' });
    expect(await begin(7)).toMatchObject({ token: 7, fingerprint: 'aa', attempt: 3 });
    expect(await begin(8, 'bb')).toMatchObject({ token: 7, fingerprint: 'aa', attempt: 3 });
  });

  it('a result that is sent twice is kept once', async () => {
    await begin(5);
    expect([await keep(5, 'first'), await keep(5, 'first')]).toEqual([true, true]);
    expect(await keep(6, 'second')).toBe(false);
    expect(await kept()).toBe('first');
  });

  it('a result of an attempt that another one has followed is refused', async () => {
    await begin(5);
    await begin(6);
    expect(await keep(5, 'late')).toBe(false);
    expect(await keep(6, 'next')).toBe(true);
    expect(await keep(5, 'late')).toBe(false);
    expect(await kept()).toBe('next');
  });

  it('a result whose attempt is forgotten is kept only for a holder of the lock', async () => {
    expect(await keep(5, 'without the lock', false)).toBe(false);
    expect(await store.read(key)).toBeNull();
    expect(await keep(5, 'within the lock')).toBe(true);
    expect(await kept()).toBe('within the lock');
  });

  it('what a caller does to the bytes of an answer does not change what is kept', async () => {
    await begin(5);
    await keep(5, 'first');
    for (const answer of [await store.read(key), await begin(6)]) answer?.payload.fill(0);
    expect(await kept()).toBe('first');
  });
});
