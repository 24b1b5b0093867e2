import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { CacheService } from 'nest-redis-lock';
import { leaseTable } from 'nest-redis-lock/postgres';
import { cli, cliJson } from '../support/cli.js';
import { startLockApp } from '../support/lock-app.js';
import { startPostgresServer } from '../support/servers/postgres-server.js';
import { type RedisCluster, startRedisCluster } from '../support/servers/redis-cluster.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';

describe('the pages for operators', () => {
  const PAGES = fileURLToPath(new URL('../../docs/operations', import.meta.url));

  /** The lines of the samples for a shell on the pages for operators. */
  const LINES = readdirSync(PAGES)
    .filter((file) => file.endsWith('.md'))
    .flatMap((file) => [...readFileSync(join(PAGES, file), 'utf8').matchAll(/^```(?:sh|bash)\n([\s\S]*?)^```/gm)])
    .flatMap(([, lines = '']) => lines.split(/\n|; /));

  /** What follows `program` on those lines, as words, without comments. */
  function callsOf(program: string): string[][] {
    const calls = LINES.filter((line) => line.startsWith(`${program} `)).map((line) => line.slice(program.length + 1));
    return calls.map((call) =>
      Array.from(
        call.replace(/ #.*$/, '').matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g),
        ([, one, two, bare]) => one ?? two ?? bare ?? '',
      ),
    );
  }

  let server: RedisServer;
  /** A page has it pause, for longer than the tests take. */
  let paused: RedisServer;
  let cluster: RedisCluster;
  beforeAll(async () => {
    [server, paused, cluster] = await Promise.all([startRedisServer(), startRedisServer(), startRedisCluster()]);
  });
  afterAll(() => Promise.all([server, paused, cluster].map((each) => each.stop())));

  it('shows commands of redis-cli that Redis takes, and what they answer', async () => {
    const commands = callsOf('redis-cli').map(([, , ...command]) => command);
    const sent = commands.filter(([first]) => !first?.startsWith('--'));
    expect(sent.length).toBeGreaterThan(6);
    const single = new Redis(server.url);
    const pausing = new Redis(paused.url);
    const node = new Redis(cluster.servers[0]?.url ?? '');
    const clients: Record<string, Redis> = { CLUSTER: node, CLIENT: pausing };
    try {
      const answers = new Map<string, unknown[]>();
      for (const [name = '', ...args] of sent) {
        const answer = await (clients[name] ?? single).call(name, ...args);
        const about = `${name} ${args[0] ?? ''}`;
        answers.set(about, [...(answers.get(about) ?? []), answer]);
      }
      expect(answers.get('CONFIG GET')).toEqual([['maxmemory-policy', 'noeviction']]);
      expect(answers.get('INFO persistence')).toEqual([
        expect.stringMatching(/^aof_enabled:0\r$[\s\S]*^aof_last_write_status:ok/m),
      ]);
      expect(answers.get('INFO replication')).toEqual([expect.stringMatching(/^connected_slaves:0\r$/m)]);
      expect(answers.get('CLIENT PAUSE')).toEqual(['OK']);
      const [one, other] = answers.get('CLUSTER KEYSLOT') ?? [];
      expect(one).toEqual(expect.any(Number));
      expect(other).toBe(one);
    } finally {
      for (const client of [single, pausing, node]) client.disconnect();
    }
  });

  it('shows commands of the program that it takes', async () => {
    const calls = callsOf('npx nest-redis-lock');
    expect(calls.length).toBeGreaterThan(5);
    for (const call of calls) {
      const args = call.map((word) => (word === '$REDIS_URL' ? server.url : word));
      const { code, err } = await cli(args, { REDIS_URL: server.url });
      expect({ args, err }).toEqual({ args, err: '' });
      expect([0, 1]).toContain(code);
    }
  });
});

describe('the command line', () => {
  const HOLD = { ttl: '5m', renew: false } as const;

  it('shows locks and values of a Redis Cluster with --cluster', async () => {
    const cluster = await startRedisCluster();
    const client = cluster.client();
    const app = await startLockApp({ redis: client });
    try {
      const names = Array.from({ length: 10 }, (_, index) => `name:${index}`);
      const locks = await Promise.all(names.map((name) => app.locks.acquire(name, HOLD)));
      await app.app.get(CacheService).set('value', 1, { ttl: '5m', tags: ['a', 'b'] });
      const at = ['--cluster', '--redis', cluster.servers[0]?.url ?? ''];
      const { value } = await cliJson(['list', ...at]);
      const listed = (value as { locks: { name: string }[] }).locks.map(({ name }) => name);
      expect(listed.toSorted()).toEqual(names);
      expect(await cliJson(['cache', 'inspect', 'value', ...at])).toMatchObject({ code: 0, value: { state: 'fresh' } });
      await Promise.all(locks.map((lock) => lock.release()));
    } finally {
      await app.close();
      client.disconnect();
      await cluster.stop();
    }
  });

  it('shows and releases a lock on PostgreSQL, and says that it cannot list', async () => {
    const server = await startPostgresServer();
    const app = await startLockApp({ backend: leaseTable(server.url) });
    try {
      const lock = await app.locks.acquire('order:7', HOLD);
      const at = ['--backend', 'postgres', '--url', server.url];
      const shown = await cliJson(['inspect', 'order:7', ...at]);
      expect(shown).toMatchObject({ code: 0, value: { owner: lock.owner } });
      const { since } = shown.value as { since: string };
      expect(Math.abs(Date.parse(since) - Date.now())).toBeLessThan(60_000);
      const list = await cli(['list', ...at]);
      expect(list).toMatchObject({ code: 2, out: '' });
      expect(list.err).toMatch(/^nest-redis-lock: .*postgres.*\n$/);
      expect(await cliJson(['release', 'order:7', ...at])).toMatchObject({ code: 0, value: { released: true } });
      expect(await app.locks.inspect('order:7')).toBeNull();
      await lock.release().catch(() => {});
      await server.stop();
      const gone = await cli(['inspect', 'order:7', ...at]);
      expect(gone).toMatchObject({ code: 3, out: '' });
      expect(gone.err).toMatch(/^nest-redis-lock: .*ECONNREFUSED.*\n$/);
    } finally {
      await app.close();
      await server.stop();
    }
  });
});
