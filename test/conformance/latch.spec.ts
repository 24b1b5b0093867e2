import { setTimeout as sleep } from 'node:timers/promises';
import {
  CountDownLatch,
  LatchNotDefinedError,
  LatchTimeoutError,
  PrimitiveConfigError,
  PrimitiveKeyError,
} from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { apps, eachPrimitiveBackend } from './each-primitive-backend.js';

eachPrimitiveBackend('CountDownLatch', () => {
  let one: CountDownLatch;
  let two: CountDownLatch;

  beforeAll(() => {
    [one, two] = [apps[0].app.get(CountDownLatch), apps[1].app.get(CountDownLatch)];
  });

  it('opens for all who wait when the last arrival is there', async () => {
    await one.define('open', { count: 3, ttl: '1m' });
    let opened = 0;
    const waiting = [one, two, two].map(async (latch) => {
      await latch.await('open', { wait: '30s' });
      opened += 1;
    });
    expect(await two.countDown('open')).toBe(2);
    expect(await one.countDown('open')).toBe(1);
    await sleep(100);
    expect(opened).toBe(0);
    expect(await two.count('open')).toBe(1);
    expect(await two.countDown('open')).toBe(0);
    await Promise.all(waiting);
    expect(await one.count('open')).toBe(0);
  });

  it('is open at once for those who come later, and takes further arrivals without effect', async () => {
    await one.define('late', { count: 1, ttl: '1m' });
    await one.countDown('late');
    await two.await('late', { wait: 0 });
    expect(await two.countDown('late')).toBe(0);
    expect(await two.count('late')).toBe(0);
  });

  it('counts an arrival with the same id once', async () => {
    await one.define('ids', { count: 2, ttl: '1m' });
    expect(await one.countDown('ids', 'chunk 1')).toBe(1);
    expect(await two.countDown('ids', 'chunk 1')).toBe(1);
    expect(await two.countDown('ids', 'chunk 2')).toBe(0);
    expect(await one.countDown('ids', 'chunk 1')).toBe(0);
  });

  it('may be defined by every process, with the same count', async () => {
    await one.define('defined', { count: 2, ttl: '1m' });
    await one.countDown('defined');
    await two.define('defined', { count: 2, ttl: '1m' });
    expect(await one.count('defined')).toBe(1);
    const other = two.define('defined', { count: 3, ttl: '1m' });
    await expect(other).rejects.toThrow('Option "count" is 3; give 2, as latch "defined" has it');
  });

  it('lets calls wait before it is defined', async () => {
    const waiting = two.await('later', { wait: '30s' });
    await sleep(50);
    await one.define('later', { count: 1, ttl: '1m' });
    await one.countDown('later');
    await waiting;
  });

  it('refuses an arrival before it is defined', async () => {
    expect(await one.count('undefined')).toBeNull();
    await expect(one.countDown('undefined')).rejects.toBeInstanceOf(LatchNotDefinedError);
  });

  it('ends a wait with an error after `wait`, and with the reason of its signal', async () => {
    await one.define('wait', { count: 2, ttl: '1m' });
    await one.countDown('wait');
    const error: unknown = await two.await('wait', { wait: 150 }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LatchTimeoutError);
    expect(error).toMatchObject({ code: 'LATCH_TIMEOUT', statusCode: 503, remaining: 1 });
    expect((error as LatchTimeoutError).waited).toBeGreaterThanOrEqual(150);
    await expect(two.await('wait', { wait: 0 })).rejects.toBeInstanceOf(LatchTimeoutError);
    await expect(two.await('nobody', { wait: 0 })).rejects.toThrow(
      /^Latch "nobody" was not open after a wait of \d+ ms: it was not defined, or its ttl is over$/,
    );
    const controller = new AbortController();
    const waiting = two.await('wait', { wait: Infinity, signal: controller.signal });
    setTimeout(() => controller.abort(new Error('enough')), 20);
    await expect(waiting).rejects.toThrow('enough');
  });

  it('wakes by a message, long before it would be looked at again', async () => {
    const hop = async (name: string) => {
      await one.define(name, { count: 1, ttl: '1m' });
      const waiting = two.await(name);
      await sleep(60);
      const since = performance.now();
      await one.countDown(name);
      await waiting;
      return performance.now() - since;
    };
    await hop('hop');
    const hops: number[] = [];
    for (let round = 0; round < 7; round += 1) hops.push(await hop(`hop ${round}`));
    expect(Math.min(...hops)).toBeLessThan(100);
  });

  it('is gone after its ttl, which each arrival starts again', async () => {
    await one.define('ttl', { count: 3, ttl: 2_000 });
    await sleep(1_200);
    await one.countDown('ttl');
    await sleep(1_200);
    expect(await one.count('ttl')).toBe(2);
    await eventually(async () => (await one.count('ttl')) === null);
    await one.define('ttl', { count: 1, ttl: 2_000 });
    expect(await one.count('ttl')).toBe(1);
  });

  it('refuses wrong keys and options by name', async () => {
    await expect(one.await('')).rejects.toBeInstanceOf(PrimitiveKeyError);
    const wrong = async (call: Promise<unknown>, message: string) => {
      const error: unknown = await call.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(PrimitiveConfigError);
      expect((error as Error).message).toContain(message);
    };
    await wrong(one.define('wrong', {} as never), '"count" is undefined');
    await wrong(one.define('wrong', { count: 1 } as never), '"ttl" is undefined');
    await wrong(one.define('wrong', { count: 1, ttl: 99 }), '"ttl" is 99');
    await wrong(one.await('wrong', { wait: -1 }), '"wait" is -1');
    await wrong(one.await('wrong', { until: 1 } as never), 'Unknown latch option "until"');
    await wrong(one.countDown('wrong', ''), '"arrivalId" is ""');
    await wrong(one.countDown('wrong', 'id', { backends: 'other' } as never), 'Unknown latch option "backends"');
    await wrong(one.count('wrong', { backend: 5 } as never), '"backend" is 5');
    await wrong(one.count('wrong', null as never), '"options" is null');
  });
});
