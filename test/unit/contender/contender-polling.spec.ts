import type { NameRequest } from '../../../lib/contracts/lock-backend.js';
import { LockTimeoutError } from '../../../lib/errors/lock-errors.js';
import { backend, clock, holding, joining, NAME, startContender, waiting } from '../../support/contender-at-backend.js';
import { busy } from '../../support/scripted-backend.js';

startContender();

let waysGiven: NameRequest[];
beforeEach(() => {
  waysGiven = [];
  backend.queue.pace = () => 50;
  backend.queue.giveWay = (request) => void waysGiven.push(request);
});

describe('where waiters poll, a turn', () => {
  it.each([
    ['another caller of this process', 1],
    ['no other caller of this process', 0],
  ])('that ends before %s gives way to other processes that wait', async (_who, behind) => {
    const { lock } = await holding({ waiting: 1 }, { behind });
    await clock.pass(60);
    const released = lock.release();
    if (behind > 0) await (await backend.take('requeue')).answer(busy());
    await released;
    expect(waysGiven).toEqual([{ prefix: undefined, name: NAME }]);
  });

  it.each([
    ['that is not over', 1, 10],
    ['of a process that waits alone', 0, 60],
  ])('%s gives no way', async (_which, others, time) => {
    const { lock } = await holding({ waiting: others });
    await clock.pass(time);
    await lock.release();
    expect(waysGiven).toEqual([]);
  });

  it('of which nobody knows whether others wait gives no way', async () => {
    const { call, enqueue } = await joining();
    await enqueue.answer({ status: 'granted', tokens: { first: 1, count: 9 }, remaining: 30_000, waiting: undefined });
    const lock = await call.held();
    await clock.pass(60);
    await lock.release();
    expect(waysGiven).toEqual([]);
  });
});

describe('where waiters poll, a caller', () => {
  it('asks at the pace for its name', async () => {
    const asked: NameRequest[] = [];
    backend.queue.pace = (request) => {
      asked.push(request);
      return 40;
    };
    const { enqueue } = await waiting({ wait: 10_000 }, { remaining: 60_000 });
    const beat = await backend.take('beat');
    expect(asked).toEqual([{ prefix: undefined, name: NAME }]);
    expect(beat.sentAt - enqueue.sentAt).toBeGreaterThanOrEqual(35);
  });

  it('asks before its wait is over, also where the pace is longer', async () => {
    backend.queue.pace = () => 5_000;
    const { enqueue } = await waiting({ wait: 200 }, { remaining: 60_000 });
    const beat = await backend.take('beat');
    expect(beat.sentAt - enqueue.sentAt).toBeLessThan(150);
  });

  it('asks 5 ms after an answer at the earliest, however soon its wait is over', async () => {
    backend.queue.pace = () => 5_000;
    backend.atOnce.beat = () => busy({ remaining: 60_000 });
    const { call, enqueue } = await waiting({ wait: 200 }, { remaining: 60_000 });
    await clock.pass(250);
    expect(call.error).toBeInstanceOf(LockTimeoutError);
    const sent = [enqueue, ...backend.all('beat')].map(({ sentAt }) => sentAt);
    const pauses = sent.slice(1).map((at, index) => at - (sent[index] as number));
    expect(pauses.length).toBeGreaterThan(3);
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(5);
  });

  it.each([
    [10, false],
    [200, false],
    [201, true],
  ])('that waits for %d ms can let other processes ask first: %s', async (wait, patient) => {
    const { enqueue } = await joining({ wait });
    expect(enqueue.request.patient).toBe(patient);
  });
});
