import { Redis } from 'ioredis';
import type { RedisServer } from '../../support/servers/redis-server.js';
import { ServerProcess } from '../../support/servers/server-process.js';
import { eventually } from '../../support/eventually.js';

export type HttpAdapter = 'express' | 'fastify';

/** Starts the program, and checks that it locks, over HTTP and in Redis, says nothing it should not, and ends. */
export async function expectAppLocks(program: string, adapter: HttpAdapter, server: RedisServer): Promise<void> {
  await using app = await ServerProcess.start({
    command: process.execPath,
    args: [program],
    env: { REDIS_URL: server.url, HTTP_ADAPTER: adapter },
    ready: async ({ log }) => listeningUrl(log),
  });
  const url = listeningUrl(app.log);
  const keys = new Redis(server.url);
  try {
    await expectOneAtATime(url);
    await expectBusy(url, keys);
    expect(await keys.keys('lock:{*}')).toEqual([]);
  } finally {
    keys.disconnect();
  }
  await app.stop();
  // Its last words may come after its exit. Nothing else may be there: no warning of Node.js or of Nest.
  await eventually(() => app.log.includes('closed')).catch(() => {});
  // But Nest 10 reads through the whole module, client included, and says so where that takes it more than 10 ms.
  const said = app.log.replaceAll(/^.*\[ModuleTokenFactory\].*\n/gm, '');
  expect(said).toBe(`listening on ${url}\nclosed after SIGTERM\n`);
}

function listeningUrl(log: string): string {
  const url = /^listening on (.*)$/m.exec(log)?.[1];
  if (!url) throw new Error('not listening');
  return url;
}

async function expectOneAtATime(url: string): Promise<void> {
  const answers = await Promise.all([1, 2, 3].map(() => post(`${url}/work/1`)));
  const bodies = await Promise.all(answers.map((answer) => answer.json()));
  expect(bodies).toEqual([{ others: 0 }, { others: 0 }, { others: 0 }]);
}

async function expectBusy(url: string, keys: Redis): Promise<void> {
  const holding = post(`${url}/hold/2`);
  await eventually(() => keys.exists('lock:{work:2}'));
  const busy = await post(`${url}/try/2`);
  expect(busy.status).toBe(423);
  expect(busy.headers.get('retry-after')).toBe('1');
  expect(await busy.json()).toMatchObject({ statusCode: 423, code: 'LOCK_TIMEOUT' });
  expect((await post(`${url}/try/3`)).status).toBe(201);
  await post(`${url}/let-go/2`);
  expect(await (await holding).json()).toEqual({ token: expect.any(Number) });
  expect((await post(`${url}/try/2`)).status).toBe(201);
}

function post(url: string): Promise<Response> {
  return fetch(url, { method: 'POST' });
}
