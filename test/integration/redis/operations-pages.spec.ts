import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { cli } from '../../support/cli.js';
import { startRedisCluster, type RedisCluster } from '../../support/servers/redis-cluster.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

const PAGES = fileURLToPath(new URL('../../../docs/operations', import.meta.url));

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
let cluster: RedisCluster;
beforeAll(async () => {
  [server, cluster] = await Promise.all([startRedisServer(), startRedisCluster()]);
});
afterAll(() => Promise.all([server.stop(), cluster.stop()]));

it('shows commands of redis-cli that Redis takes, and what they answer', async () => {
  const commands = callsOf('redis-cli').map(([, , ...command]) => command);
  const sent = commands.filter(([first]) => !first?.startsWith('--'));
  expect(sent.length).toBeGreaterThan(6);
  const single = new Redis(server.url);
  const node = new Redis(cluster.servers[0]?.url ?? '');
  try {
    const answers = new Map<string, unknown[]>();
    for (const [name = '', ...args] of sent) {
      const answer = await (name === 'CLUSTER' ? node : single).call(name, ...args);
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
    await single.call('CLIENT', 'UNPAUSE').catch(() => {});
    single.disconnect();
    node.disconnect();
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
