import getPort from 'get-port';
import { Redis } from 'ioredis';
import { cli } from '../../support/cli.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

const COMMANDS = [['list'], ['release', 'x', '--yes'], ['cache', 'inspect', 'x'], ['watch']];

describe('a server that does not serve', () => {
  it.each(COMMANDS)(
    '%s %s names the server, the cause and the remedy in one line, and exits with 3',
    async (...args) => {
      const port = await getPort();
      const { code, out, err } = await cli([...args, '--redis', `redis://127.0.0.1:${port}`]);
      expect({ code, out }).toEqual({ code: 3, out: '' });
      expect(err).toMatch(new RegExp(`^nest-redis-lock: .*127\\.0\\.0\\.1:${port}.*ECONNREFUSED.*start Redis.*\n$`));
    },
  );

  it('may refuse the password', async () => {
    const admin = new Redis(server.url);
    await admin.call('ACL', 'SETUSER', 'operator', 'on', '>right', '~*', '&*', '+@all');
    admin.disconnect();
    const { host, searchParams: _none } = new URL(server.url);
    const { code, err } = await cli(['list', '--redis', `redis://operator:wrong@${host}`]);
    expect(code).toBe(3);
    expect(err).toMatch(/^nest-redis-lock: .*WRONGPASS.*correct username and password.*\n$/);
    expect(err).not.toMatch('wrong@');
    expect(await cli(['list', '--redis', `redis://operator:right@${host}`])).toMatchObject({ code: 0, err: '' });
  });

  it('may have a host name that does not exist', async () => {
    const { code, err } = await cli(['list', '--redis', 'redis://nowhere.invalid:6379']);
    expect(code).toBe(3);
    expect(err).toMatch(/^nest-redis-lock: .*nowhere\.invalid.*host name.*\n$/);
  });
});

describe('wrong usage exits with 2', () => {
  it.each([
    { args: ['list', '--colour'], says: "unknown option '--colour'" },
    { args: ['lits'], says: "unknown command 'lits'" },
    { args: ['inspect'], says: "missing required argument 'name'" },
    { args: ['list', '--limit', '0'], says: 'from 1 to 10000' },
    { args: ['watch', '--interval', 'soon'], says: '100 ms or more' },
    { args: ['list', '--backend', 'sqlite'], says: 'Allowed choices are redis, postgres' },
    { args: ['list', '--backend', 'etcd'], says: 'needs --url' },
    { args: ['list', '--url', 'redis://localhost'], says: 'give --redis' },
    { args: ['cache', 'invalidate'], says: 'Give a key, or --tag' },
    { args: ['cache', 'inspect', 'x', '--backend', 'mysql', '--url', 'mysql://x'], says: 'The cache is in Redis' },
    { args: ['list', '--prefix', 'a{b}'], says: 'prefix' },
    { args: ['list', '--redis', 'http://localhost'], says: 'redis' },
  ])('$args', async ({ args, says }) => {
    const { code, out, err } = await cli(args, { REDIS_URL: server.url });
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(says);
    expect(err).not.toMatch(/^ +at /m);
  });

  it('also for a cursor that no list printed', async () => {
    const { code, err } = await cli(['list', '--cursor', 'x'], { REDIS_URL: server.url });
    expect(code).toBe(2);
    expect(err).toMatch('cursor');
  });
});

it('shows its help and its version, and exits with 0', async () => {
  const help = await cli(['list', '--help']);
  expect(help).toMatchObject({ code: 0, err: '' });
  for (const option of ['--cursor', '--limit', '--redis', '--prefix', '--json']) expect(help.out).toMatch(option);
  expect(await cli(['--version'])).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
});
