import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type IdempotencyAttempt, IdempotencyService } from 'nest-redis-lock';
import { BEGIN, ENTER, KEEP_RESULT, LEAVE } from '../../lib/backends/redis/primitives/redis-idempotency-store.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../support/lock-app.js';
import { server, startRedis } from '../support/one-redis.js';

/** Of a lock: long enough (ms) that a busy machine does not end it by itself. */
const LEASE = 3_000;

interface Run {
  readonly id: string;
  readonly attempt: number;
}

const children: Child[] = [];

function startCaller(key: string, how: 'quick' | 'hang' | 'freeze', calls = 1): Child {
  const args = [server.port, key, calls, LEASE, how].map(String);
  const child = Child.start('idempotent-caller.mjs', args);
  children.push(child);
  return child;
}

/** How often each answer was given. */
const answersOf = async (child: Child) => new Map(await child.says<[string, number][]>('answered'));

const runsOf = (caller: Child) =>
  caller.output
    .split('\n')
    .filter((line) => line.startsWith('ran'))
    .map((line) => JSON.parse(line.slice('ran'.length)) as Run);

describe('idempotent methods over processes', () => {
  let client: Redis;

  // Before the server stops.
  afterAll(() => client.quit());
  startRedis();
  beforeAll(() => {
    client = new Redis(server.url);
  });
  afterEach(async () => {
    await Promise.all(children.splice(0).map((child) => child.kill()));
  });

  it('run once for 1,000 duplicates in 4 processes, and give them equal answers', async () => {
    const callers = Array.from({ length: 4 }, () => startCaller('order:1', 'quick', 250));
    const answers = await Promise.all(callers.map(answersOf));
    const runs = callers.flatMap(runsOf);
    expect(runs).toHaveLength(1);
    expect(answers).toEqual(callers.map(() => new Map([[JSON.stringify(runs[0]), 250]])));
  });

  it('run again as attempt 2 when the process dies, as soon as its lease has ended', async () => {
    const dying = startCaller('order:2', 'hang');
    await dying.says<Run>('ran');
    const next = startCaller('order:2', 'quick');
    // It waits at Redis, or the death of the other one would be found before its call.
    await eventually(() => client.exists('lock:{idempotency:order:2}:queue'));
    const lease = await client.pttl('lock:{idempotency:order:2}');
    await dying.kill();
    const { attempt } = await next.says<Run>('ran');
    expect(attempt).toBe(2);
    expect(lease).toBeLessThanOrEqual(LEASE);
    expect([...(await answersOf(next)).keys()]).toEqual([JSON.stringify(runsOf(next)[0])]);
  });

  it('refuse the result of a process that was frozen beyond its lease, and keep that of the next one', async () => {
    const frozen = startCaller('order:3', 'freeze');
    await frozen.says<Run>('ran');
    frozen.signal('SIGSTOP');
    const next = startCaller('order:3', 'quick');
    const newer = await next.says<Run>('ran');
    expect(newer.attempt).toBe(2);
    const answer = JSON.stringify(newer);
    expect(await answersOf(next)).toEqual(new Map([[answer, 1]]));
    frozen.signal('SIGUSR2');
    frozen.signal('SIGCONT');
    expect(await answersOf(frozen)).toEqual(new Map([['LockLostError', 1]]));
    expect(await answersOf(startCaller('order:3', 'hang'))).toEqual(new Map([[answer, 1]]));
  });

  it('leave no key without an expiry', async () => {
    const keys = await client.keys('*');
    expect(keys.filter((key) => key.endsWith(':result')).toSorted()).toEqual([
      'lock:{idempotency:order:1}:result',
      'lock:{idempotency:order:2}:result',
      'lock:{idempotency:order:3}:result',
    ]);
    expect(await Promise.all(keys.map((key) => client.pttl(key)))).not.toContain(-1);
  });
});

/**
 * Loses the connection at each command of a call, before Redis carried it out or afterwards. Whatever the caller gets:
 * the method never runs twice at a time, and a result that a caller got is the one that repeats get.
 */

const COMMANDS = {
  read: (key: string) => `{idempotency:${key}}:result`,
  'take the lock': (key: string) => `{idempotency:${key}}\r\n`,
  begin: () => BEGIN.sha1,
  'keep the result': () => KEEP_RESULT.sha1,
};
/** Of a call that takes all steps before the method in one request, and those after it in another one. */
const TOGETHER = { enter: () => ENTER.sha1, leave: () => LEAVE.sha1 };

type Step = keyof typeof COMMANDS;

const NAMES = [
  ...(Object.keys(COMMANDS) as Step[]),
  'release the lock',
  ...(Object.keys(TOGETHER) as (keyof typeof TOGETHER)[]),
] as const;

interface Outcome {
  readonly title: string;
  readonly key: string;
  /** The attempts of the method, in order. */
  readonly attempts: readonly number[];
  readonly mostAtOnce: number;
  readonly first: PromiseSettledResult<string>;
  readonly repeats: readonly string[];
}

/** Counts what runs at the same time. */
class Method {
  readonly attempts: number[] = [];
  mostAtOnce = 0;
  private running = 0;

  async run({ attempt }: IdempotencyAttempt): Promise<string> {
    this.running += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.running);
    this.attempts.push(attempt);
    await sleep(20);
    this.running -= 1;
    return `attempt ${attempt}`;
  }
}

describe('a call that loses its connection', () => {
  let other: LockApp;
  let client: Redis;

  // Before the server stops.
  afterAll(async () => {
    await other.close();
    await client.quit();
  });
  startRedis();
  beforeAll(async () => {
    other = await startLockApp({ redis: server.url });
    client = new Redis(server.url);
    // From now on, all scripts are called by their digests.
    await other.app.get(IdempotencyService).run('warm-up', {}, async () => {});
  });

  async function outcomeOf(
    name: (typeof NAMES)[number],
    carriedOut: boolean,
    thenRefuses: boolean,
    lease: number,
  ): Promise<Outcome> {
    const title = `${name}, ${carriedOut ? 'carried out' : 'not carried out'}`;
    const key = `${title}, ${thenRefuses}`;
    const proxy = await FaultProxy.start(server.port);
    // A busy machine connects slowly: the call must not end for another reason.
    const patience = thenRefuses ? {} : { commandTimeout: 15_000 };
    const app = await startLockApp({ redis: `redis://127.0.0.1:${proxy.port}`, shutdownGrace: 100, ...patience });
    const method = new Method();
    const lose = (pattern: string) => proxy.lose(pattern, carriedOut, { thenRefuses });
    const together = name in TOGETHER;
    let lost = name === 'release the lock' ? undefined : lose({ ...COMMANDS, ...TOGETHER }[name](key));
    const { results } = app.app.get(PrimitiveRuntime).home('Idempotent methods').stores;
    if (!together) Object.assign(results, { enter: undefined, leave: undefined });
    const service = app.app.get(IdempotencyService);
    const body = async (attempt: IdempotencyAttempt) => {
      const result = await method.run(attempt);
      if (name === 'release the lock') lost ??= lose(`{idempotency:${key}}\r\n`);
      return result;
    };
    const [first] = await Promise.allSettled([service.run(key, { lease, wait: thenRefuses ? 2_000 : 30_000 }, body)]);
    await lost;
    proxy.accept();
    const again = other.app.get(IdempotencyService);
    const repeats = await Promise.all(
      [1, 2].map(() => again.run(key, { lease, wait: 60_000 }, (attempt) => method.run(attempt))),
    );
    const { attempts, mostAtOnce } = method;
    const outcome = { title, key, attempts, mostAtOnce, first, repeats };
    await app.close();
    await proxy.stop();
    return outcome;
  }

  const allOutcomes = (thenRefuses: boolean, lease: number) =>
    Promise.all(NAMES.flatMap((name) => [true, false].map((done) => outcomeOf(name, done, thenRefuses, lease))));

  it('runs the method once if the connection comes back', async () => {
    for (const { title, attempts, first, repeats } of await allOutcomes(false, 20_000)) {
      expect([title, first.status, attempts]).toEqual([title, 'fulfilled', [1]]);
      expect([title, ...repeats]).toEqual([title, 'attempt 1', 'attempt 1']);
    }
  });

  it('never runs the method twice at a time, nor returns what is not kept, if it stays away', async () => {
    const outcomes = await allOutcomes(true, 2_000);
    for (const { title, attempts, mostAtOnce, first, repeats } of outcomes) {
      expect([title, mostAtOnce]).toEqual([title, 1]);
      expect([title, new Set(repeats).size]).toEqual([title, 1]);
      if (first.status === 'fulfilled') expect([title, attempts, repeats[0]]).toEqual([title, [1], first.value]);
      // An attempt that began and did not run the method counts, too.
      else expect([title, attempts]).toEqual([title, attempts.toSorted((a, b) => a - b)]);
      expect([title, attempts.length <= 2]).toEqual([title, true]);
    }
    const ends = new Map(outcomes.map(({ title, first, attempts }) => [title, [first.status, attempts.length]]));
    expect(ends.get('begin, carried out')).toEqual(['rejected', 1]);
    expect(ends.get('enter, carried out')).toEqual(['rejected', 1]);
    expect(ends.get('enter, not carried out')).toEqual(['rejected', 1]);
    expect(ends.get('leave, carried out')).toEqual(['rejected', 1]);
    expect(ends.get('leave, not carried out')).toEqual(['rejected', 2]);
    expect(ends.get('keep the result, carried out')).toEqual(['rejected', 1]);
    expect(ends.get('keep the result, not carried out')).toEqual(['rejected', 2]);
  });

  it('leaves no key without an expiry', async () => {
    const keys = await eventually(() => client.keys('*'));
    expect(await Promise.all(keys.map((key) => client.pttl(key)))).not.toContain(-1);
  });
});
