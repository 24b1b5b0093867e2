import { EventEmitter } from 'node:events';
import {
  Cached,
  CacheEvict,
  CachePut,
  DistributedLock,
  Idempotent,
  LockConfigError,
  LockKeyError,
  OnlyLeader,
  PrimitiveConfigError,
  PrimitiveKeyError,
  RateLimit,
  ScheduledLock,
  Semaphore,
} from 'nest-redis-lock';
import { testServices, wire } from 'nest-redis-lock/testing';
import { lastValueFrom, Observable, of } from 'rxjs';
import { Gate } from '../../support/gate.js';

const FREE = { atMostFor: '1m', atLeastFor: 0 } as const;

/** Of which tests make several instances. */
class Shop {
  constructor(
    readonly name: string,
    readonly asked: unknown[] = [],
  ) {}

  protected note<T>(answer: T): T {
    this.asked.push(answer);
    return answer;
  }
}

describe('wire', () => {
  class Locked {
    @DistributedLock('order:<0>')
    async take(id: string) {
      return id;
    }
  }

  it('refuses what it cannot give services to', () => {
    expect(() => wire(Object.freeze(new Locked()))).toThrow('An instance of Locked is frozen; wire it before');
    expect(() => wire(null as unknown as object)).toThrow('wire() got null; give it an instance of a class');
    expect(() => wire(new Map())).toThrow('An instance of Map has no method with a decorator of nest-redis-lock');
  });
});

describe('the functions of a decorator', () => {
  const key = function (this: Shop, id: string): string {
    return `${this.name}:${id}`;
  };
  const options = {
    wait: 0,
    onBusy(this: Shop): string {
      return `busy at ${this.name}`;
    },
  };

  class Keys extends Shop {
    @DistributedLock(key, options)
    async lock(_id: string, until?: Promise<void>): Promise<unknown> {
      return until;
    }

    @DistributedLock(key, options)
    lockStream(_id: string): Observable<unknown> {
      return of('free');
    }

    @Semaphore(key, { permits: 1, ...options })
    async permit(_id: string, until?: Promise<void>): Promise<unknown> {
      return until;
    }

    @RateLimit(key, { limit: 1, per: '1h', onLimit: options.onBusy })
    async limited(_id: string): Promise<string> {
      return 'ran';
    }

    @Idempotent(key, {
      fingerprint(this: Shop, id: string) {
        return [this.name, id];
      },
      signal(this: Shop) {
        this.asked.push('signal');
        return undefined;
      },
      keepErrors(this: Shop) {
        return this.name === 'berlin';
      },
    })
    async pay(id: string): Promise<string> {
      this.asked.push(id);
      throw new Error(`${this.name} fails`);
    }

    @Cached(key, {
      tags(this: Shop) {
        return [this.name];
      },
      condition(this: Shop, id: string) {
        return this.name !== id;
      },
      unless(this: Shop, result: string) {
        return result === `${this.name} 0`;
      },
      forceFresh(this: Shop) {
        return this.asked.length === 0;
      },
      signal(this: Shop) {
        this.asked.push('signal');
        return undefined;
      },
      revive(this: Shop, stored) {
        return `${String(stored)} of ${this.name}`;
      },
    })
    async read(id: string): Promise<string> {
      return `${this.name} ${id}`;
    }

    @CachePut(key, {
      value(this: Shop, result: string) {
        return `${result} at ${this.name}`;
      },
      condition(this: Shop, id: string) {
        return this.name !== id;
      },
      unless(this: Shop, _result: string, id: string) {
        return id === `un${this.name}`;
      },
      tags(this: Shop) {
        return [this.name];
      },
    })
    async put(id: string): Promise<string> {
      return id;
    }

    @CacheEvict(
      function (this: Shop, id: string) {
        return [`${this.name}:${id}`];
      },
      {
        tags(this: Shop) {
          return [this.name];
        },
      },
    )
    async evict(_id: string): Promise<void> {}
  }

  function shops() {
    const services = testServices();
    const [berlin, paris] = ['berlin', 'paris'].map((name) => wire(new Keys(name), services)) as [Keys, Keys];
    return { berlin, paris, services };
  }

  it.each(['lock', 'permit'] as const)('of a %s have the instance as `this`', async (method) => {
    const { berlin, paris } = shops();
    const gate = new Gate();
    const held = berlin[method]('7', gate.opened);
    expect(await paris[method]('7')).toBeUndefined();
    expect(await berlin[method]('7')).toBe('busy at berlin');
    gate.open();
    await held;
  });

  it('of a locked stream have the instance as `this`', async () => {
    const { berlin, paris, services } = shops();
    const held = await services.locks.acquire('berlin:7');
    expect(await lastValueFrom(paris.lockStream('7'))).toBe('free');
    expect(await lastValueFrom(berlin.lockStream('7'))).toBe('busy at berlin');
    await held.release();
  });

  it('of a rate limit have the instance as `this`', async () => {
    const { berlin, paris } = shops();
    expect([await berlin.limited('7'), await paris.limited('7'), await berlin.limited('7')]).toEqual([
      'ran',
      'ran',
      'busy at berlin',
    ]);
  });

  it('of an idempotent method have the instance as `this`', async () => {
    const { berlin, paris } = shops();
    for (const shop of [berlin, berlin, paris, paris])
      await expect(shop.pay('7')).rejects.toThrow(`${shop.name} fails`);
    expect(berlin.asked).toEqual(['signal', '7', 'signal']);
    expect(paris.asked).toEqual(['signal', '7', 'signal', '7']);
  });

  it('of cached methods have the instance as `this`', async () => {
    const { berlin, paris, services } = shops();
    const { cache } = services;
    expect([await berlin.read('7'), await paris.read('7')]).toEqual(['berlin 7', 'paris 7']);
    expect(await cache.get('berlin:7')).toBe('berlin 7');
    await berlin.read('0');
    expect(await cache.get('berlin:0')).toBeUndefined();
    await cache.set('berlin:berlin', 'other');
    expect(await berlin.read('berlin')).toBe('berlin berlin');
    await cache.set('berlin:7', 'stored', { tags: ['berlin'] });
    await cache.set('paris:7', 'stored', { tags: ['paris'] });
    expect([await berlin.read('7'), await paris.read('7')]).toEqual(['stored of berlin', 'stored of paris']);
    await berlin.put('8');
    await paris.put('8');
    expect(await cache.get('berlin:8')).toBe('8 at berlin');
    await berlin.put('unberlin');
    expect(await cache.get('berlin:unberlin')).toBeUndefined();
    await berlin.evict('none');
    expect([await cache.get('berlin:8'), await cache.get('paris:8')]).toEqual([undefined, '8 at paris']);
  });
});

describe('<this.name> in a template', () => {
  class Keys extends Shop {
    readonly part: { readonly city: string } = { city: '' };

    @DistributedLock(['<this.name>:<0>', 'all:<#this.part>'])
    async lock(_id: string): Promise<readonly string[]> {
      return [];
    }

    @Cached('of:<this.constructor.name>:<this.name>:<0>', { tags: ['<this.name>'] })
    async read(id: string): Promise<string> {
      return `${this.name} ${id}`;
    }

    @DistributedLock('<this.part.city>')
    async absent(): Promise<void> {}

    @ScheduledLock('nightly:<this.name>', FREE)
    async run(): Promise<void> {
      this.note('ran');
    }
  }

  it('is the value of the instance, escaped as one of an argument is', async () => {
    const services = testServices();
    const [one, two] = ['a:b', 'a'].map((name) => wire(new Keys(name), services)) as [Keys, Keys];
    const held = await services.locks.acquire('a%3Ab:7');
    await expect(Promise.race([one.lock('7'), two.lock('b:7').then(() => 'free')])).resolves.toBe('free');
    await held.release();
    expect(await one.read('7')).toBe('a:b 7');
    expect(await services.cache.get('of:Keys:a%3Ab:7')).toBe('a:b 7');
    await services.cache.deleteByTag('a:b');
    await services.cache.deleteByTag('a%3Ab');
    expect(await services.cache.get('of:Keys:a%3Ab:7')).toBeUndefined();
  });

  it('is refused where the instance has none', async () => {
    await expect(wire(new Keys('a')).absent()).rejects.toThrow(LockKeyError);
    await expect(wire(new Keys('a')).absent()).rejects.toThrow(/<this\.part\.city> is an empty string/);
  });

  it('tells the jobs of instances apart', async () => {
    const services = testServices();
    const [one, two] = ['a', 'b'].map((name) => wire(new Keys(name), services)) as [Keys, Keys];
    const held = await services.locks.acquire('schedule:nightly:a');
    await Promise.all([one.run(), two.run()]);
    expect([one.asked, two.asked]).toEqual([[], ['ran']]);
    await held.release();
  });

  it('needs a property, and a name that can have one', async () => {
    expect(() => DistributedLock('<this>')).toThrow(/"<this>" is not a placeholder/);
    expect(() => ScheduledLock('job:<this>', FREE)).toThrow(PrimitiveKeyError);
    expect(() => ScheduledLock('job:<this.name>:<0>', FREE)).toThrow(PrimitiveKeyError);
    expect(() => OnlyLeader('leads:<this.name>')).toThrow(PrimitiveKeyError);
    const { jobs } = testServices();
    await expect(jobs.run('job:<this.name>', FREE, async () => {})).rejects.toThrow(PrimitiveKeyError);
  });
});

describe('a function as `signal`', () => {
  const signal = (_id: string, given?: AbortSignal) => given;

  class Waiting {
    @DistributedLock('order:<0>', { wait: '1m', signal })
    async lock(_id: string, _given?: AbortSignal): Promise<string> {
      return 'ran';
    }

    @DistributedLock('order:<0>', { wait: '1m', signal })
    lockStream(_id: string, _given?: AbortSignal): Observable<string> {
      return of('ran');
    }

    @Semaphore('order:<0>', { permits: 1, wait: '1m', signal })
    async permit(_id: string, _given?: AbortSignal): Promise<string> {
      return 'ran';
    }

    @Semaphore('order:<0>', { permits: 1, wait: '1m', signal })
    permitStream(_id: string, _given?: AbortSignal): Observable<string> {
      return of('ran');
    }
  }

  it.each(['lock', 'lockStream', 'permit', 'permitStream'] as const)(
    'gives up the wait of one call of %s, and of no other',
    async (method) => {
      const services = testServices();
      const shop = wire(new Waiting(), services);
      const call = async (given?: AbortSignal): Promise<string> => {
        const result = shop[method]('1', given);
        return result instanceof Observable ? lastValueFrom(result) : result;
      };
      const held = method.startsWith('lock')
        ? await services.locks.acquire('order:1')
        : await services.semaphores.acquire('order:1', { permits: 1 });
      const leaving = new AbortController();
      const [left, stays, besides] = [call(leaving.signal), call(), call(new AbortController().signal)];
      const gone = new Error('gone');
      leaving.abort(gone);
      await expect(left).rejects.toBe(gone);
      await held.release();
      expect([await stays, await besides, await call()]).toEqual(['ran', 'ran', 'ran']);
    },
  );

  it('that returns something else is refused, with the name of the option', async () => {
    class Mistaken {
      @DistributedLock('order', { signal: () => 'now' as never })
      async lock(): Promise<void> {}

      @Semaphore('order', { permits: 1, signal: () => null as never })
      permit(): Observable<string> {
        return of('ran');
      }
    }
    const mistaken = wire(new Mistaken());
    await expect(mistaken.lock()).rejects.toThrow(LockConfigError);
    await expect(mistaken.lock()).rejects.toThrow('Option "signal" is "now"; give an AbortSignal');
    await expect(lastValueFrom(mistaken.permit())).rejects.toThrow(PrimitiveConfigError);
    expect(() => DistributedLock('order', { signal: 'now' as never })).toThrow('Option "signal" is "now"');
    expect(() => Semaphore('order', { permits: 1, signal: 'now' as never })).toThrow('Option "signal" is "now"');
  });

  it('is one for all calls where a signal is given', async () => {
    const over = new AbortController();
    class Once {
      @DistributedLock('order', { signal: over.signal })
      async lock(): Promise<string> {
        return 'ran';
      }
    }
    const services = testServices();
    const once = wire(new Once(), services);
    const held = await services.locks.acquire('order');
    over.abort(new Error('over'));
    await expect(once.lock()).rejects.toThrow('over');
    await held.release();
  });
});

describe('a decorated method that is called without its instance', () => {
  class Passed {
    @DistributedLock('order:<0>')
    async lock(_id: string): Promise<void> {}

    @DistributedLock('order:<0>')
    stream(_id: string): Observable<string> {
      return of('ran');
    }

    @Semaphore('order:<0>', { permits: 1 })
    async permit(_id: string): Promise<void> {}

    @RateLimit('order:<0>', { limit: 1, per: '1s' })
    async limited(_id: string): Promise<void> {}

    @Idempotent('order:<0>')
    async once(_id: string): Promise<void> {}

    @Cached('order:<0>', { condition: (id: string) => id !== '' })
    async read(_id: string): Promise<void> {}

    @CachePut('order:<0>')
    async put(_id: string): Promise<void> {}

    @CacheEvict('order:<0>')
    async evict(_id: string): Promise<void> {}

    @ScheduledLock('job', FREE)
    async job(): Promise<void> {}

    @OnlyLeader('leads')
    async lead(): Promise<void> {}
  }

  const methods = ['lock', 'stream', 'permit', 'limited', 'once', 'read', 'put', 'evict', 'job', 'lead'] as const;

  async function errorOf(call: () => unknown): Promise<Error> {
    const failed = async (): Promise<never> => {
      const result = call();
      await (result instanceof Observable ? lastValueFrom(result) : result);
      throw new Error('it ran');
    };
    return failed().catch((error: unknown) => error as Error);
  }

  it.each(methods)('says so: %s', async (name) => {
    const passed = wire(new Passed());
    const method = passed[name] as (id: string) => unknown;
    const alone = await errorOf(() => method('7'));
    expect(alone).toMatchObject({ code: expect.stringMatching(/_NOT_WIRED$/) });
    expect(alone.message).toContain(`Passed.${name} did not run: it was called without its instance, as happens to`);
    expect(alone.message).toContain(`shop.${name}.bind(shop)`);
    const elsewhere = await errorOf(() => method.call(new EventEmitter() as never, '7'));
    expect(elsewhere.message).toContain('it was called on another object');
    const unwired = await errorOf(() => (new Passed()[name] as (id: string) => unknown).call(new Passed(), '7'));
    expect(unwired.message).toMatch(/did not run: its instance has no \w+\. Let Nest create it/);
  });
});
