import { Redis } from 'ioredis';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

/** A leader that is killed, stopped or ended in order; a second Redis tells who acted as leader. */

const LEASE = 2_000;

let locks: RedisServer;
let outside: RedisServer;
let evidence: Redis;
let candidates: Child[] = [];

beforeAll(async () => {
  [locks, outside] = await Promise.all([startRedisServer(), startRedisServer()]);
  evidence = new Redis(outside.url);
});
afterEach(async () => {
  await Promise.all(candidates.map((candidate) => candidate.kill()));
  candidates = [];
});
afterAll(async () => {
  evidence.disconnect();
  await Promise.all([locks.stop(), outside.stop()]);
});

function stand(): Child {
  const candidate = Child.start('leader.mjs', [locks.port, outside.port, LEASE].map(String));
  candidates.push(candidate);
  return candidate;
}

/** Who acted as leader, in order: the term and the process. */
async function reigns(): Promise<{ term: number; leader: Child | undefined }[]> {
  const lines = await evidence.lrange('terms', 0, -1);
  return lines.map((line) => {
    const [term, pid] = line.split(' ').map(Number);
    return { term: term as number, leader: candidates.find((each) => each.pid === pid) };
  });
}

it('has one leader at a time while leaders are killed, stopped and ended', async () => {
  const [one, two, three] = [stand(), stand(), stand()];
  for (const candidate of candidates) await candidate.says('ready');
  const next = async (number: number) => {
    const all = await eventually(async () => {
      const known = await reigns();
      return known.length >= number ? known : undefined;
    });
    return all[number - 1]?.leader as Child;
  };

  const killed = await next(1);
  killed.signal('SIGKILL');

  const stopped = await next(2);
  stopped.signal('SIGSTOP');
  const ended = await next(3);
  stopped.signal('SIGCONT');
  expect(await stopped.says('over')).toBe('lost');

  ended.signal('SIGTERM');
  expect(await ended.says('over')).toBe('left');
  expect(await ended.exited).toBe(0);
  expect(await next(4)).toBe(stopped);
  const steps = Number(await evidence.get('steps'));
  await eventually(async () => Number(await evidence.get('steps')) > steps);

  expect(new Set([killed, stopped, ended])).toEqual(new Set([one, two, three]));
  const terms = (await reigns()).map(({ term }) => term);
  expect(terms).toEqual(terms.toSorted((a, b) => a - b));
  expect(await evidence.get('refused')).toBeNull();
});

it('elects a leader whenever the store is there: at the start, and after it was away', async () => {
  await locks.stop();
  const candidate = stand();
  await candidate.says('ready');
  expect(candidate.output).not.toContain('elected');
  locks = await startRedisServer({ port: locks.port });
  await candidate.says('elected');
  await locks.stop();
  expect(await candidate.says('over')).toBe('lost');
  locks = await startRedisServer({ port: locks.port });
  await eventually(() => candidate.output.split('\n').filter((line) => line.startsWith('elected')).length === 2);
  expect(await evidence.get('refused')).toBeNull();
});
