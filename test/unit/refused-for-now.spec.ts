import type { Redis } from 'ioredis';
import { ScriptRunner } from '../../lib/backends/redis/connection/script-runner.js';
import { RENEW } from '../../lib/backends/redis/locks/release.lua.js';

/** A client whose server answers EVALSHA with these errors, one after the other, and then with 7. */
function refusing(...refusals: string[]): { client: Redis; sent: () => number } {
  let sent = 0;
  const evalsha = async () => {
    sent += 1;
    const refusal = refusals.shift();
    if (refusal !== undefined) throw new Error(refusal);
    return 7;
  };
  const client = { evalsha, status: 'ready', isCluster: false, on: () => client, off: () => client };
  return { client: client as unknown as Redis, sent: () => sent };
}

it.each([
  'LOADING Redis is loading the dataset in memory',
  'TRYAGAIN Multiple keys request during rehashing of slot',
  'CLUSTERDOWN The cluster is down',
  'MOVED 866 127.0.0.1:7001',
  'ASK 866 127.0.0.1:7001',
  'Too many Cluster redirections. Last error: ReplyError: TRYAGAIN Multiple keys request during rehashing of slot',
  "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
])('sends again what is refused with %s', async (refusal) => {
  const { client, sent } = refusing(refusal, refusal, refusal);
  expect(await new ScriptRunner(client).run(RENEW, ['a', 'b'], [1, 2, 1])).toBe(7);
  expect(sent()).toBe(4);
});

it('sends any other command again, too', async () => {
  const refusals = ['LOADING Redis is loading the dataset in memory', 'CLUSTERDOWN The cluster is down'];
  const { client } = refusing();
  const runner = new ScriptRunner(client);
  const answer = await runner.command(async () => {
    const refusal = refusals.shift();
    if (refusal !== undefined) throw new Error(refusal);
    return 'PONG';
  });
  expect([answer, refusals]).toEqual(['PONG', []]);
});

it('does not send again for longer than a command may take, nor after a permanent refusal', async () => {
  const refusal = 'LOADING Redis is loading the dataset in memory';
  const loading = refusing(...Array.from({ length: 1_000 }, () => refusal));
  await expect(new ScriptRunner(loading.client).run(RENEW, [], [])).rejects.toThrow(refusal);
  expect(loading.sent()).toBeLessThan(30);
  const wrong = refusing('WRONGTYPE Operation against a key holding the wrong kind of value');
  await expect(new ScriptRunner(wrong.client).run(RENEW, [], [])).rejects.toThrow('WRONGTYPE');
  expect(wrong.sent()).toBe(1);
});
