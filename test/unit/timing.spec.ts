import { AsyncLocalStorage, createHook } from 'node:async_hooks';
import { jest } from '@jest/globals';
import { mayEnd, mustNotEnd, nextHeartbeat, sharedInstant, Ticks, Timeouts } from '../../lib/timing/clock.js';
import { collectGarbage } from '../support/collect-garbage.js';

describe('timeouts', () => {
  let timeouts: Timeouts;
  let expired: string[];

  beforeEach(() => {
    jest.useFakeTimers();
    timeouts = new Timeouts();
    expired = [];
  });
  afterEach(() => jest.useRealTimers());

  const note = (name: string) => ({ expire: () => void expired.push(name) });

  it('expire in time, each after its own duration', () => {
    timeouts.start(100, note('long'));
    timeouts.start(50, note('short'));
    jest.advanceTimersByTime(50);
    expect(expired).toEqual(['short']);
    jest.advanceTimersByTime(50);
    expect(expired).toEqual(['short', 'long']);
  });

  it('do not expire once they have left', () => {
    const left = timeouts.start(100, note('left'));
    timeouts.start(100, note('stayed'));
    left.leave();
    jest.advanceTimersByTime(1_000);
    expect(expired).toEqual(['stayed']);
  });

  it('are in time even if another one was started when one expired', () => {
    timeouts.start(100, {
      expire: () => {
        expired.push('first');
        timeouts.start(100, note('third'));
      },
    });
    jest.advanceTimersByTime(40);
    timeouts.start(100, note('second'));
    jest.advanceTimersByTime(60);
    expect(expired).toEqual(['first']);
    jest.advanceTimersByTime(41);
    expect(expired).toEqual(['first', 'second']);
    jest.advanceTimersByTime(60);
    expect(expired).toEqual(['first', 'second', 'third']);
  });

  it('of many durations keep no timer once they have left, and are still in time', () => {
    for (let duration = 1_000; duration < 1_300; duration++) timeouts.start(duration, note(String(duration))).leave();
    expect(jest.getTimerCount()).toBeLessThanOrEqual(64);
    const staying = Array.from({ length: 100 }, (_, index) => 5_000 + index);
    for (const duration of staying) timeouts.start(duration, note(String(duration)));
    jest.advanceTimersByTime(6_000);
    expect(expired).toEqual(staying.map(String));
  });

  it('of more durations at once than share timers keep none once they have left', () => {
    const staying = Array.from({ length: 70 }, (_, index) => 10_000 + index);
    for (const duration of staying) timeouts.start(duration, note(String(duration)));
    const timers = jest.getTimerCount();
    for (let duration = 1_000; duration < 1_300; duration++) {
      const timeout = timeouts.start(duration, note(String(duration)));
      expect(timeout.leave()).toBe(true);
      expect(timeout.leave()).toBe(false);
    }
    expect(jest.getTimerCount()).toBe(timers);
    jest.advanceTimersByTime(11_000);
    expect(expired).toEqual(staying.map(String));
  });

  it('of durations that never come again leave nothing behind once they have left', async () => {
    jest.useRealTimers();
    const start = (from: number) => {
      for (let each = from; each < from + 10_000; each++) timeouts.start(each, note('')).leave();
    };
    start(1_000_000);
    await collectGarbage();
    const before = process.memoryUsage().heapUsed;
    start(2_000_000);
    await collectGarbage();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(500_000);
  });

  describe('that do not count standstills', () => {
    const standStill = (ms: number) => {
      for (const until = performance.now() + ms; performance.now() < until;);
    };

    beforeEach(() => {
      jest.useRealTimers();
      timeouts = new Timeouts({ countsStandstills: false });
    });

    it('let what has arrived meanwhile be read, in as many turns of the event loop as that takes', async () => {
      const limit = timeouts.start(40, note('limit'));
      standStill(160);
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
      expect(expired).toEqual([]);
      limit.leave();
    });

    it('expire all the same, each in its order, where the process stands still again and again', async () => {
      timeouts.start(50, note('first'));
      standStill(75);
      timeouts.start(50, note('second'));
      const begun = performance.now();
      while (expired.length < 2 && performance.now() - begun < 5_000) {
        standStill(40);
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect(expired).toEqual(['first', 'second']);
    });

    it('expire in time where it does not', () => {
      jest.useFakeTimers();
      timeouts.start(100, note('limit'));
      jest.advanceTimersByTime(99);
      expect(expired).toEqual([]);
      jest.advanceTimersByTime(1);
      expect(expired).toEqual(['limit']);
    });
  });
});

it('makes no timer in the async context of a call, which would keep what that context has', () => {
  const made: string[] = [];
  const hook = createHook({ init: (_id, type) => made.push(type) }).enable();
  new AsyncLocalStorage<string>().run('request', mustNotEnd);
  hook.disable();
  mayEnd();
  expect(made).not.toContain('Timeout');
});

describe('ticks', () => {
  let ticks: Ticks;
  let called: string[];

  beforeEach(() => {
    jest.useFakeTimers();
    ticks = new Ticks();
    called = [];
  });
  afterEach(() => jest.useRealTimers());

  const note = (name: string) => () => void called.push(`${name} at ${performance.now()}`);

  it('call what is overdue soon, without a negative delay, of which Node.js 24 warns', () => {
    const timers = jest.spyOn(globalThis, 'setTimeout');
    jest.advanceTimersByTime(50);
    ticks.start(20, note('overdue'));
    expect(timers).toHaveBeenCalledWith(expect.anything(), 1);
    jest.advanceTimersByTime(1);
    expect(called).toEqual(['overdue at 51']);
  });

  it('call what is due in one millisecond by one timer, in order, and nothing too early', () => {
    ticks.start(20, note('later'));
    ticks.start(10, note('first'));
    ticks.start(10.9, note('second'));
    expect(jest.getTimerCount()).toBe(2);
    jest.advanceTimersByTime(30);
    expect(called).toEqual(['first at 10', 'second at 10', 'later at 20']);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('do not call what has left, also not for one that is called before it', () => {
    const left = ticks.start(10, note('left'));
    const leaving = ticks.start(10, () => staying.leave());
    const staying = ticks.start(10, note('left by the one before'));
    expect(left.leave()).toBe(true);
    expect(left.leave()).toBe(false);
    jest.advanceTimersByTime(20);
    expect(leaving.leave()).toBe(false);
    expect(called).toEqual([]);
  });

  it('take what is started for now by one of them', () => {
    ticks.start(10, () => ticks.start(10, note('again')));
    jest.advanceTimersByTime(20);
    expect(called).toEqual(['again at 11']);
  });

  it('wait for the instant where the timer fires before it', () => {
    const now = jest.spyOn(performance, 'now');
    ticks.start(10, note('due'));
    now.mockReturnValueOnce(7);
    jest.advanceTimersByTime(10);
    expect(called).toEqual([]);
    jest.advanceTimersByTime(10);
    expect(called).toHaveLength(1);
    now.mockRestore();
  });

  it('call the others although one throws, which is uncaught', () => {
    ticks.start(10, () => {
      throw new Error('broken');
    });
    ticks.start(10, note('other'));
    expect(() => jest.advanceTimersByTime(20)).toThrow('broken');
    expect(called).toEqual(['other at 10']);
  });

  it('call nothing once they are stopped', () => {
    ticks.start(10, note('first'));
    ticks.start(20, note('second'));
    ticks.stop();
    expect(jest.getTimerCount()).toBe(0);
  });
});

describe('the instant that all of one period share', () => {
  it.each([
    [1_000, 1_000, 1_000],
    [1_250, 1_000, 1_000],
    [1_500, 1_000, 1_000],
    [1_600, 1_000, 1_100],
    [1_996, 1_000, 2_000],
    [1_990, 1_000, 1_490],
    [149, 50, 150],
  ])('is for one that is due at %d every %d ms: %d', (at, period, instant) => {
    expect(sharedInstant(at, period)).toBe(instant);
  });

  it('is one for all heartbeats after a while, each of which keeps its distance', () => {
    for (const period of [400, 500, 1_000]) {
      for (let number = 0; number <= 100; number++) {
        let at = 7 + (number * period) / 100;
        for (let times = 0; times < 26; times++) {
          const next = nextHeartbeat(at + period, period);
          expect(next - at).toBeLessThanOrEqual(period + 5);
          expect(next - at).toBeGreaterThanOrEqual(0.95 * period);
          at = next;
        }
        expect(at % period).toBe(0);
      }
    }
  });

  it('is one for all after two periods, whenever each began, and then has the distance of a period', () => {
    for (const period of [400, 500, 1_000, 1_000 / 3, 10_000]) {
      for (let number = 0; number <= 100; number++) {
        let at = 7 + (number * period) / 100;
        for (let times = 0; times < 2; times++) {
          const next = sharedInstant(at + period, period);
          expect(next - at).toBeLessThanOrEqual(period + 5);
          expect(next - at).toBeGreaterThanOrEqual(period / 2 - 5);
          at = next;
        }
        expect(at / period).toBeCloseTo(Math.round(at / period), 6);
        expect(sharedInstant(at + period, period) - at).toBeCloseTo(period, 6);
      }
    }
  });
});
