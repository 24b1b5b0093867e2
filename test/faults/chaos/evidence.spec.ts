import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { Evidence, type EvidenceScript } from './evidence.js';

let server: RedisServer;
let client: Redis;
let evidence: Evidence;

beforeAll(async () => {
  server = await startRedisServer();
  client = new Redis({ host: '127.0.0.1', port: server.port });
});
beforeEach(async () => {
  await client.flushdb();
  evidence = await Evidence.open(server.port, ['hot']);
});
afterEach(() => evidence.close());
afterAll(async () => {
  await client.quit();
  await server.stop();
});

function step(
  script: Exclude<EvidenceScript, 'note'>,
  token: number,
  holder: string,
  argument: number | string = 0,
): Promise<unknown> {
  const { scripts, tally, findings } = evidence.address;
  return client.evalsha(scripts[script], 3, tally, findings, 'hot', token, holder, argument);
}

/** As Redis tells time in microseconds: close to the largest whole number that a double holds exactly. */
const TOKEN = 8_000_000_000_000_001;

it('counts holds one after another, and finds nothing', async () => {
  expect(await step('read', TOKEN, 'first', 7)).toEqual([1, '0']);
  await step('write', TOKEN, 'first', 1);
  expect(await step('read', TOKEN + 1, 'second', 3)).toEqual([1, '1']);
  await step('write', TOKEN + 1, 'second', 2);
  await evidence.noteLostUpdates();
  expect(await evidence.findings()).toEqual([]);
  expect(await evidence.tally()).toMatchObject({ cycles: 2, longestWait: 7, findingsInAll: 0 });
});

it('refuses both steps of a holder that another one has followed', async () => {
  await step('read', TOKEN, 'stopped');
  await step('read', TOKEN + 1, 'next');
  expect(await step('write', TOKEN, 'stopped', 1)).toEqual([0, String(TOKEN + 1)]);
  expect(await step('read', TOKEN, 'stopped')).toEqual([0, String(TOKEN + 1)]);
  expect(await evidence.tally()).toMatchObject({ cycles: 0 });
  expect(await evidence.findings()).toEqual([]);
});

it('finds two holders with one token', async () => {
  await step('read', TOKEN, 'first');
  await step('read', TOKEN, 'second');
  expect(await evidence.findings()).toEqual([`hot, token ${TOKEN}: two holders, first and second`]);
});

it('finds a token that is accepted twice', async () => {
  await step('read', TOKEN, 'first');
  await step('write', TOKEN, 'first', 1);
  await step('write', TOKEN, 'first', 2);
  expect(await evidence.findings()).toEqual([`hot, token ${TOKEN}: accepted after ${TOKEN}`]);
});

it('finds a write without a read', async () => {
  await step('write', TOKEN, 'first', 1);
  expect(await evidence.findings()).toEqual([`hot, token ${TOKEN}: written without having read`]);
});

it('finds a write that overwrote another', async () => {
  await step('read', TOKEN, 'first');
  await step('write', TOKEN, 'first', 1);
  await step('read', TOKEN + 1, 'second');
  await step('write', TOKEN + 1, 'second', 1);
  await evidence.noteLostUpdates();
  expect(await evidence.findings()).toEqual(['hot: 2 writes made the counter 1']);
});

describe('of a reader', () => {
  it('counts it when it has seen one counter twice', async () => {
    expect(await step('look', TOKEN, 'reader', '')).toEqual([1, '0']);
    await step('look', TOKEN, 'reader', '0');
    expect(await evidence.tally()).toMatchObject({ cycles: 1, reads: 1, findingsInAll: 0 });
    expect(await evidence.ended()).toEqual([1]);
  });

  it('refuses it when a writer has followed', async () => {
    await step('look', TOKEN, 'reader', '');
    await step('read', TOKEN + 1, 'writer');
    expect(await step('look', TOKEN, 'reader', '0')).toEqual([0, String(TOKEN + 1)]);
  });

  it('refuses a writer when a reader has followed', async () => {
    await step('read', TOKEN, 'writer');
    await step('look', TOKEN + 1, 'reader', '');
    expect(await step('write', TOKEN, 'writer', 1)).toEqual([0, `${TOKEN + 1} of a reader`]);
  });

  it('finds a counter that changed beside it', async () => {
    await step('look', TOKEN, 'reader', '');
    await client.hset('hot', 'counter', 5);
    await step('look', TOKEN, 'reader', '0');
    expect(await evidence.findings()).toEqual([`hot, token ${TOKEN}: reader read 0 and then 5`]);
  });
});
