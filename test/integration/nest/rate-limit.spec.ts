import 'reflect-metadata';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  memory,
  PrimitiveConfigError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RateLimit,
  RateLimiter,
  RateLimitExceededError,
  RedisLockModule,
  type LimitedCall,
  type RateLimitOptions,
} from 'nest-redis-lock';
import { wire } from 'nest-redis-lock/testing';
import { lastValueFrom, Observable, of, toArray } from 'rxjs';
import { startLockApp } from '../../support/lock-app.js';

const TWO = { limit: 2, per: '1h' } as const;

@Injectable()
class Mailer {
  sent = 0;

  @RateLimit('user:<0>', TWO)
  async send(_user: string): Promise<number> {
    return (this.sent += 1);
  }

  @RateLimit('user:<0>', { ...TWO, onLimit: 'skip' })
  async sendIfAllowed(_user: string): Promise<number | undefined> {
    return (this.sent += 1);
  }

  @RateLimit((user: string) => `user:${user}`, { ...TWO, onLimit: (call: LimitedCall) => call })
  async sendOrSay(_user: string): Promise<unknown> {
    return (this.sent += 1);
  }

  @RateLimit('stream:<0>', { limit: 1, per: '1h' })
  stream(_user: string): Observable<number> {
    return new Observable((subscriber) => {
      this.sent += 1;
      subscriber.next(1);
      subscriber.next(2);
      subscriber.complete();
    });
  }

  @RateLimit('undeclared', { limit: 1, per: '1h' })
  async undeclared(): Promise<unknown> {
    return of(1);
  }

  @RateLimit('skipped:<0>', { limit: 1, per: '1h', onLimit: 'skip' })
  skipped(_user: string): Observable<number> {
    return of(1, 2);
  }

  @RateLimit('said:<0>', { limit: 1, per: '1h', onLimit: ({ key }) => key })
  said(_user: string): Observable<unknown> {
    return of(1, 2);
  }
}

async function boot(useFactory?: () => Mailer) {
  class Root {}
  const provider = useFactory ? { provide: Mailer, useFactory } : Mailer;
  const module = { module: Root, imports: [RedisLockModule.forRoot({ backend: memory() })], providers: [provider] };
  const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
  return { mailer: app.get(Mailer), limiter: app.get(RateLimiter), [Symbol.asyncDispose]: () => app.close() };
}

const all = <T>(stream: Observable<T>) => lastValueFrom(stream.pipe(toArray()));

describe('a method with a rate limit', () => {
  it.each([
    ['Nest constructs', undefined],
    ['a factory makes', () => new Mailer()],
  ])('of an instance that %s runs as often as the limit allows', async (_how, factory) => {
    await using app = await boot(factory);
    const { mailer } = app;
    expect([await mailer.send('a'), await mailer.send('a'), await mailer.send('b')]).toEqual([1, 2, 3]);
    const refused = mailer.send('a');
    await expect(refused).rejects.toThrow(RateLimitExceededError);
    await expect(refused).rejects.toMatchObject({ statusCode: 429, keys: ['user:a'] });
    expect(mailer.sent).toBe(3);
  });

  it('shares the count of its key and limit with others, and with the service', async () => {
    await using app = await boot();
    await app.mailer.send('a');
    expect(await app.limiter.take('user:a', TWO)).toMatchObject({ allowed: true, remaining: 0 });
    expect(await app.mailer.sendIfAllowed('a')).toBeUndefined();
    expect(app.mailer.sent).toBe(1);
  });

  it('answers by a function beyond the limit', async () => {
    await using app = await boot();
    await app.limiter.take('user:a', { ...TWO, cost: 2 });
    expect(await app.mailer.sendOrSay('a')).toMatchObject({
      key: 'user:a',
      args: ['a'],
      error: { code: 'RATE_LIMIT_EXCEEDED', limit: 2 },
    });
  });

  it('counts an Observable when it is subscribed to', async () => {
    await using app = await boot();
    const { mailer } = app;
    const streams = [mailer.stream('a'), mailer.stream('a')] as const;
    expect(mailer.sent).toBe(0);
    expect(await all(streams[0])).toEqual([1, 2]);
    await expect(all(streams[1])).rejects.toThrow(RateLimitExceededError);
    expect(mailer.sent).toBe(1);
    expect([await all(mailer.skipped('a')), await all(mailer.skipped('a'))]).toEqual([[1, 2], []]);
    expect([await all(mailer.said('a')), await all(mailer.said('a'))]).toEqual([[1, 2], ['said:a']]);
  });

  it('refuses an Observable that it returns without being declared to', async () => {
    await using app = await boot();
    await expect(app.mailer.undeclared()).rejects.toThrow(
      /^Mailer\.undeclared returned an Observable without being declared to: its caller would get a promise of it/,
    );
  });

  it('does not run without a valid key', async () => {
    await using app = await boot();
    await expect(app.mailer.send('')).rejects.toThrow(PrimitiveKeyError);
    await expect(app.mailer.send(undefined as never)).rejects.toThrow(PrimitiveKeyError);
    await expect(app.limiter.take('', TWO)).rejects.toThrow(PrimitiveKeyError);
    expect(app.mailer.sent).toBe(0);
  });

  it('does not run on an instance without the service, or with a mock that decides nothing', async () => {
    await expect(new Mailer().send('a')).rejects.toThrow(PrimitiveNotWiredError);
    const mocked = wire(new Mailer(), { rateLimits: { take: async () => {} } as never });
    await expect(mocked.send('a')).rejects.toThrow(PrimitiveNotWiredError);
  });

  it('works in a unit test', async () => {
    const mailer = wire(new Mailer());
    await mailer.send('a');
    await mailer.send('a');
    await expect(mailer.send('a')).rejects.toThrow(RateLimitExceededError);
  });
});

it('does not take of a limit after the end of the application', async () => {
  const app = await startLockApp({ backend: memory() });
  const limiter = app.app.get(RateLimiter);
  await app.close();
  await expect(limiter.take('key', TWO)).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND', statusCode: 503 });
});

it.each<[what: string, options: object, message: string]>([
  ['no limit', { per: '1s' }, 'Option "limit" is undefined; give how many units come back in "per"'],
  ['no time', { limit: 1 }, 'Option "per" is undefined; give the time'],
  ['an unknown option', { ...TWO, window: 1 }, 'Unknown rate limit option "window"; give any of limit, per, burst'],
  ['a duration that is none', { limit: 1, per: '1 hour' }, 'Option "per" is "1 hour"; give milliseconds'],
  ['half a unit', { limit: 0.5, per: '1h' }, 'Option "limit" is 0.5; give a whole number from 1 on'],
  ['no options', undefined as never, 'Option "options" is undefined; give a limit'],
  ['no burst', { ...TWO, burst: 0 }, 'Option "burst" is 0; give a whole number from 1 on'],
  ['a limit that is no number', { limit: Number.NaN, per: '1h' }, 'Option "limit" is NaN; give a whole number'],
  ['no limit at all', { limit: Infinity, per: '1h' }, 'Option "limit" is Infinity; give a whole number'],
  ['a time without end', { limit: 1, per: Infinity }, 'Option "per" is Infinity; give milliseconds'],
  ['no time at all', { limit: 1, per: 0 }, 'Option "per" is 0; give milliseconds'],
  ['a cost of nothing', { ...TWO, cost: 0 }, 'Option "cost" is 0; give a whole number from 1 on'],
  ['a cost that never fits', { ...TWO, cost: 3 }, 'Option "cost" is 3; give at most the burst (2)'],
  ['a share that never fits', { ...TWO, localShare: 3 }, 'Option "localShare" is 3; give at most the burst (2)'],
  [
    'more than a unit a µs',
    { limit: 1_001, per: 1 },
    'Option "limit" is 1001; give at most one unit for each microsecond',
  ],
  ['a time too long', { limit: 1, per: '3650d', burst: 11 }, 'Option "per" is 315360000000; give less than 100 years'],
  ['both forms', { ...TWO, limits: [TWO] }, 'Options "limits" and "limit", "per" or "burst" exclude each other'],
  ['an empty list', { limits: [] }, 'give a list of one to 8 limits'],
  ['a limit that is none', { limits: [{ limit: 1 }] }, 'Option "per" is undefined'],
  [
    'another word for failure',
    { ...TWO, onFailure: 'throw' },
    `Option "onFailure" is "throw"; give 'open', 'closed' or 'local'`,
  ],
  [
    'another word for the limit',
    { ...TWO, onLimit: 'wait' },
    `Option "onLimit" is "wait"; give 'throw', 'skip' or a function`,
  ],
])('%s is refused where the method is decorated', (_what, options, message) => {
  expect(() => RateLimit('key', options as RateLimitOptions)).toThrow(PrimitiveConfigError);
  expect(() => RateLimit('key', options as RateLimitOptions)).toThrow(message);
});
