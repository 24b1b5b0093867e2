import { fixedDelay, type LockOptions } from 'nest-redis-lock';
import { app, backend, Call, clock, NAME, startContender, waiting } from '../../../support/contender-at-backend.js';
import { granted, grantMessage } from '../../../support/scripted-backend.js';

/** A server may carry a request out after the client has closed its connection, and after the release of its ticket. */
startContender();

describe.each<[string, LockOptions, 'enqueue' | 'acquire']>([
  ['to queue', { wait: 10_000 }, 'enqueue'],
  ['without a wait', { wait: 0 }, 'enqueue'],
  ['that polls', { wait: 10_000, retry: fixedDelay(5_000) }, 'acquire'],
])('what a failed request %s is granted late', (_which, options, kind) => {
  const released = async (more: LockOptions = {}) => {
    const call = new Call({ ...options, ...more });
    const request = await backend.take(kind);
    await request.fail();
    await call.giveUp();
    const { ticket } = request;
    return { ticket, times: () => backend.releases.filter((each) => each === ticket).length };
  };

  it('is released after each pause, until the backend frees it', async () => {
    backend.atOnce.release = () => ({ status: 'gone', resent: false });
    const { times } = await released();
    expect(times()).toBe(1);
    await clock.pass(1_100);
    expect(times()).toBe(2);
    backend.atOnce.release = () => ({ status: 'released', resent: false });
    await clock.pass(4_100);
    expect(times()).toBe(3);
    await clock.pass(30_000);
    expect(times()).toBe(3);
  });

  it('is not released after its lease would have ended', async () => {
    backend.atOnce.release = () => ({ status: 'taken', resent: false });
    const { times } = await released();
    await clock.pass(100_000);
    // At once, after 1, 5 and 21 s.
    expect(times()).toBe(4);
  });

  it('is not released for hours where the lease is as long', async () => {
    backend.atOnce.release = () => ({ status: 'gone', resent: false });
    const { times } = await released({ ttl: '1h' });
    await clock.pass(95_000);
    expect(times()).toBe(5);
    await clock.pass(600_000);
    expect(times()).toBe(5);
  });

  it('keeps no shutdown', async () => {
    backend.atOnce.release = () => ({ status: 'gone', resent: false });
    const { times } = await released();
    await app.close();
    await clock.pass(30_000);
    expect(times()).toBe(1);
  });
});

it('what a renewal without an answer may have made last is released for as long', async () => {
  const { call, ticket } = await waiting({ ttl: 20_000 });
  await backend.tell(grantMessage(ticket, NAME, { claim: 150 }));
  const renew = await backend.take('renew');
  const { release } = backend.atOnce;
  delete backend.atOnce.release;
  await clock.pass(160);
  await renew.fail();
  Object.assign(backend.atOnce, { release });
  await (await backend.take('enqueue')).answer(granted());
  const next = await call.held();
  // The claim is over when the first release has had no answer, and what was asked for is not.
  const releases = () => backend.releases.filter((each) => each === ticket).length;
  expect(releases()).toBe(1);
  await clock.pass(4_000);
  expect(releases()).toBe(2);
  await next.release();
});
