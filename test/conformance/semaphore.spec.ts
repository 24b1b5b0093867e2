import { setTimeout as sleep } from 'node:timers/promises';
import {
  PrimitiveConfigError,
  PrimitiveKeyError,
  SemaphoreService,
  SemaphoreTimeoutError,
  type Permit,
} from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { apps, eachPrimitiveBackend, startWith } from './each-primitive-backend.js';

eachPrimitiveBackend('SemaphoreService', () => {
  let one: SemaphoreService;
  let two: SemaphoreService;

  beforeAll(() => {
    [one, two] = [apps[0].app.get(SemaphoreService), apps[1].app.get(SemaphoreService)];
  });

  const fill = (key: string, permits: number) =>
    Promise.all(Array.from({ length: permits }, () => one.acquire(key, { permits })));

  it('lets as many in as there are permits, over both applications', async () => {
    let [inside, most] = [0, 0];
    const body = async () => {
      most = Math.max(most, (inside += 1));
      await sleep(5);
      inside -= 1;
    };
    const calls = Array.from({ length: 40 }, (_, index) =>
      (index % 2 ? one : two).withPermit('most', { permits: 3, wait: '30s' }, body),
    );
    await Promise.all(calls);
    expect(most).toBe(3);
    expect(await one.available('most', { permits: 3 })).toBe(3);
  });

  it('answers busy at once with `wait: 0` and with tryAcquire', async () => {
    const [permit] = await fill('busy', 1);
    await expect(two.acquire('busy', { permits: 1, wait: 0 })).rejects.toMatchObject({
      code: 'SEMAPHORE_TIMEOUT',
      statusCode: 429,
      keys: ['busy'],
    });
    expect(await two.tryAcquire('busy', { permits: 1 })).toBeNull();
    await permit?.release();
    await using other = await two.tryAcquire('busy', { permits: 1 });
    expect(other?.held).toBe(true);
  });

  it('ends a wait with an error after `wait`, and leaves nothing in the queue', async () => {
    const [permit] = await fill('timeout', 1);
    const waiting = two.acquire('timeout', { permits: 1, wait: 150 });
    const error: unknown = await waiting.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(SemaphoreTimeoutError);
    expect((error as SemaphoreTimeoutError).waited).toBeGreaterThanOrEqual(150);
    expect((error as SemaphoreTimeoutError).retryAfter).toBe(1_000);
    await permit?.release();
    await using next = await one.tryAcquire('timeout', { permits: 1 });
    expect(next?.held).toBe(true);
  });

  it('ends a wait with the reason of its signal', async () => {
    await using _ = (await fill('signal', 1))[0] as Permit;
    const controller = new AbortController();
    const waiting = two.acquire('signal', { permits: 1, wait: Infinity, signal: controller.signal });
    setTimeout(() => controller.abort(new Error('enough')), 20);
    await expect(waiting).rejects.toThrow('enough');
    const aborted = AbortSignal.abort(new Error('before'));
    await expect(two.acquire('signal', { permits: 1, signal: aborted })).rejects.toThrow('before');
  });

  it('serves waiters of both applications in order of arrival', async () => {
    const [permit] = await fill('order', 1);
    const order: number[] = [];
    const waiters: Promise<void>[] = [];
    for (const index of [0, 1, 2, 3, 4, 5]) {
      const service = index % 2 ? one : two;
      waiters.push(
        service.withPermit('order', { permits: 1, wait: '30s' }, async () => {
          order.push(index);
        }),
      );
      await sleep(50);
    }
    await permit?.release();
    await Promise.all(waiters);
    expect(order).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it('passes a permit on in a crowd of one application, in order, for a short turn', async () => {
    const [permit] = await fill('turn', 1);
    const order: string[] = [];
    const waiters = [one, two].flatMap((service, place) =>
      Array.from({ length: 40 }, (_, index) =>
        service.withPermit('turn', { permits: 1, wait: '30s' }, async () => {
          order.push(`${place}:${index}`);
          await sleep(2);
        }),
      ),
    );
    await sleep(50);
    // What a service asks now is answered after what its calls have asked.
    await Promise.all([one, two].map((service) => service.available('turn')));
    await permit?.release();
    await Promise.all(waiters);
    for (const place of [0, 1]) {
      const own = order.filter((each) => each.startsWith(`${place}:`));
      expect(own).toEqual(Array.from({ length: 40 }, (_, index) => `${place}:${index}`));
    }
    // A turn serves several, and both applications get turns before either has served all.
    const turns = order.filter((each, index) => each[0] !== order[index - 1]?.[0]).length;
    expect(turns).toBeGreaterThan(2);
    expect(turns).toBeLessThan(60);
  });

  it('grants by a message, before a heartbeat would find the grant', async () => {
    let [queued, found] = [0, 0];
    await using app = await startWith(({ semaphores }) => ({
      semaphores: {
        acquire: async (request) => {
          const answer = await semaphores.acquire(request);
          if (answer.status === 'busy') queued += 1;
          return answer;
        },
        beat: async (request) => {
          const answer = await semaphores.beat(request);
          if (answer.states.some(({ status }) => status === 'granted')) found += 1;
          return answer;
        },
      },
    }));
    // Of the first ones, the channel may not be open yet, or a heartbeat may be under way.
    await eventually(async () => {
      [queued, found] = [0, 0];
      const [permit] = await fill('push', 1);
      const waiting = app.app.get(SemaphoreService).acquire('push', { permits: 1, wait: '30s' });
      await eventually(() => queued > 0);
      await permit?.release();
      await (await waiting).release();
      return found === 0;
    });
  });

  describe('several permits at once', () => {
    it('takes all or none', async () => {
      await using four = await one.acquire('several', { permits: 5, count: 4 });
      expect(four.count).toBe(4);
      expect(await two.available('several')).toBe(1);
      expect(await two.tryAcquire('several', { permits: 5, count: 2 })).toBeNull();
      expect(await two.available('several')).toBe(1);
    });

    it('holds up those behind it, so that it is not starved', async () => {
      const first = await fill('starve', 3);
      const order: string[] = [];
      const big = two.acquire('starve', { permits: 3, count: 3, wait: '30s' }).then((permit) => {
        order.push('big');
        return permit;
      });
      await sleep(100);
      const small = one.acquire('starve', { permits: 3, wait: '30s' }).then((permit) => {
        order.push('small');
        return permit;
      });
      await sleep(100);
      await first[0]?.release();
      expect(await one.tryAcquire('starve', { permits: 3 })).toBeNull();
      await first[1]?.release();
      await sleep(100);
      expect(order).toEqual([]);
      await first[2]?.release();
      await (await big).release();
      await (await small).release();
      expect(order).toEqual(['big', 'small']);
    });

    it('lets the next ones in when the one that held them up gives up', async () => {
      const first = await fill('give-up', 2);
      const big = two.acquire('give-up', { permits: 2, count: 2, wait: 300 });
      await sleep(100);
      const small = one.acquire('give-up', { permits: 2, wait: '30s' });
      await first[0]?.release();
      await expect(big).rejects.toBeInstanceOf(SemaphoreTimeoutError);
      await (await small).release();
      await first[1]?.release();
    });

    it('wakes several waiters with one release', async () => {
      const all = await one.acquire('wake', { permits: 3, count: 3 });
      const waiters = [1, 2, 3].map(() => two.acquire('wake', { permits: 3, wait: '30s' }));
      await sleep(100);
      await all.release();
      for (const permit of await Promise.all(waiters)) await permit.release();
    });
  });

  describe('the number of permits', () => {
    it('may grow, which lets waiters in', async () => {
      const held = await fill('grow', 1);
      const waiting = one.acquire('grow', { permits: 1, wait: '30s' });
      await sleep(50);
      const more = await two.acquire('grow', { permits: 3, wait: '30s' });
      for (const permit of [...held, more, await waiting]) await permit.release();
    });

    it('may shrink, which throws nobody out and lets nobody in', async () => {
      const held = await fill('shrink', 3);
      expect(await two.tryAcquire('shrink', { permits: 2 })).toBeNull();
      expect(held.every((permit) => permit.held)).toBe(true);
      await held[0]?.release();
      expect(await two.tryAcquire('shrink', { permits: 2 })).toBeNull();
      expect(await two.available('shrink')).toBe(0);
      await held[1]?.release();
      const last = await two.tryAcquire('shrink', { permits: 2 });
      expect(last?.held).toBe(true);
      await last?.release();
      await held[2]?.release();
    });

    it('passes over a waiter that wants more than there are by now, which keeps its place', async () => {
      const held = await fill('too-many', 4);
      const big = two.acquire('too-many', { permits: 4, count: 4, wait: '30s' });
      await sleep(50);
      const small = one.acquire('too-many', { permits: 2, wait: '30s' });
      await sleep(50);
      for (const permit of held.slice(0, 3)) await permit.release();
      const entered = await small;
      const more = await one.acquire('too-many', { permits: 4, wait: 0 }).catch((error: unknown) => error);
      expect(more).toBeInstanceOf(SemaphoreTimeoutError);
      await entered.release();
      await held[3]?.release();
      await (await big).release();
    });

    it('may be as large as whole numbers are exact', async () => {
      const permits = Number.MAX_SAFE_INTEGER;
      await using permit = await one.acquire('large', { permits, count: 1_000 });
      expect(permit.held).toBe(true);
      expect(await two.available('large')).toBe(permits - 1_000);
    });

    it('changes with every call while two versions of an application differ, and is never exceeded', async () => {
      let [inside, most] = [0, 0];
      const body = async () => {
        most = Math.max(most, (inside += 1));
        await sleep(3);
        inside -= 1;
      };
      const calls = Array.from({ length: 60 }, (_, index) =>
        index % 2
          ? one.withPermit('versions', { permits: 2, wait: '1m' }, body)
          : two.withPermit('versions', { permits: 4, wait: '1m' }, body),
      );
      await Promise.all(calls);
      expect(most).toBeLessThanOrEqual(4);
      expect(await one.available('versions', { permits: 4 })).toBe(4);
    });

    it('is unknown before the first call', async () => {
      expect(await one.available('unknown')).toBeNull();
      expect(await one.available('unknown', { permits: 4 })).toBe(4);
    });
  });

  describe('a permit', () => {
    it('tells of itself, and has a token above all before', async () => {
      const first = await one.acquire('token', { permits: 2 });
      const second = await two.acquire('token', { permits: 2 });
      expect(second.fencingToken).toBeGreaterThan(first.fencingToken);
      expect(first).toMatchObject({ key: 'token', count: 1, held: true });
      expect(first.owner).not.toBe(second.owner);
      expect(first.remaining()).toBeGreaterThan(20_000);
      expect(() => first.assertHeld()).not.toThrow();
      await first.release();
      await first.release();
      expect(first.held).toBe(false);
      expect(first.remaining()).toBe(0);
      expect(first.signal.aborted).toBe(false);
      expect(() => first.assertHeld()).toThrow(expect.objectContaining({ reason: 'released' }));
      await second[Symbol.asyncDispose]();
      expect(await one.available('token', { permits: 2 })).toBe(2);
    });

    it('is renewed for as long as it is held, also beyond the claim that a waiter is granted', async () => {
      const [first] = await fill('renewed', 1);
      const waiting = two.acquire('renewed', { permits: 1, ttl: 2_000 });
      await sleep(50);
      await first?.release();
      await using permit = await waiting;
      await sleep(2_300);
      expect(permit.held).toBe(true);
      expect(await one.available('renewed')).toBe(0);
    });

    it('is held and renewed without a warning where the claim of a waiter is longer than its `ttl`', async () => {
      const before = apps.map(({ logger }) => logger.lines.length);
      const [first] = await fill('claimed', 1);
      const waiting = two.acquire('claimed', { permits: 1, ttl: 300 });
      await sleep(50);
      await first?.release();
      await using permit = await waiting;
      await sleep(500);
      expect(permit.held).toBe(true);
      expect(permit.remaining()).toBeLessThanOrEqual(300);
      expect(apps.map(({ logger }, index) => logger.lines.slice(before[index]))).toEqual([[], []]);
    });

    it('is the current one inside of withPermit', async () => {
      expect(one.current()).toBeUndefined();
      await one.withPermit('current', { permits: 2 }, async (permit) => {
        expect(one.current()).toBe(permit);
        expect(two.current()).toBeUndefined();
        await two.withPermit('current', { permits: 2 }, async (inner) => {
          expect(two.current()).toBe(inner);
          expect(one.current()).toBe(permit);
        });
      });
      expect(one.current()).toBeUndefined();
    });
  });

  it('passes results and errors of the body through, and gives the permit back', async () => {
    expect(await one.withPermit('body', { permits: 1 }, async () => 7)).toBe(7);
    const failing = one.withPermit('body', { permits: 1 }, async () => Promise.reject(new Error('mine')));
    await expect(failing).rejects.toThrow('mine');
    expect(await two.available('body', { permits: 1 })).toBe(1);
  });

  it('refuses wrong keys and options by name', async () => {
    await expect(one.acquire('', { permits: 1 })).rejects.toBeInstanceOf(PrimitiveKeyError);
    const wrong = async (options: object, message: string) => {
      const call = one.acquire('wrong', options as { permits: number });
      const error: unknown = await call.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(PrimitiveConfigError);
      expect((error as Error).message).toContain(message);
    };
    await wrong({}, '"permits" is undefined');
    await wrong({ permits: 0 }, '"permits" is 0');
    await wrong({ permits: 1.5 }, '"permits" is 1.5');
    await wrong({ permits: NaN }, '"permits" is NaN');
    await wrong({ permits: 2 ** 53 }, '"permits" is 9007199254740992');
    await wrong({ permits: Infinity }, '"permits" is Infinity');
    await wrong({ permits: 2, count: 0 }, '"count" is 0');
    await wrong({ permits: 2, count: 3 }, '"count" is 3; give at most 2');
    await wrong({ permits: 2_000, count: 1_001 }, '"count" is 1001; give at most 1000');
    await wrong({ permits: 1, ttl: 99 }, '"ttl" is 99');
    await wrong({ permits: 1, limit: 1 }, 'Unknown semaphore option "limit"');
  });

  it.each<[string, unknown, string]>([
    ['a number that is none', { permits: NaN }, '"permits" is NaN'],
    ['a word for the number', { permits: '3' }, '"permits" is "3"'],
    ['a backend that is no name', { backend: 5 }, '"backend" is 5'],
    ['an unknown option', { limit: 3 }, 'Unknown semaphore option "limit"'],
    ['no object', null, '"options" is null'],
  ])('refuses to tell how many are free by %s', async (_what, options, message) => {
    const call = one.available('wrong', options as { permits: number });
    await expect(call).rejects.toThrow(PrimitiveConfigError);
    await expect(call).rejects.toThrow(message);
  });

  it('tells how many are free by the options of a call', async () => {
    expect(await one.available('shared', { permits: 2, wait: '1m' } as { permits: number })).toBe(2);
  });
});
