import { Redis } from 'ioredis';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
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
    const killed = performance.now();
    await dying.kill();
    const { attempt } = await next.says<Run>('ran');
    expect(attempt).toBe(2);
    expect(lease).toBeLessThanOrEqual(LEASE);
    expect(performance.now() - killed).toBeLessThan(3 * (LEASE + 1_000));
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
