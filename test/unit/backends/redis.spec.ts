import { EventEmitter } from 'node:events';
import { jest } from '@jest/globals';
import { createClient, createSentinel } from '@redis/client';
import { Cluster, Command, type Redis } from 'ioredis';
import { redlock } from 'nest-redis-lock/redlock';
import type { Notice } from 'nest-redis-lock/backend';
import { RedisCacheBus } from '../../../lib/backends/redis/cache/redis-cache-bus.js';
import {
  encodedCall,
  encodedCommandClass,
  ScriptBatch,
  type ScriptRequest,
} from '../../../lib/backends/redis/connection/script-batch.js';
import { adapted } from '../../../lib/backends/redis/connection/adapted-servers.js';
import { type NodeRedisSentinel, onMaster } from '../../../lib/backends/redis/connection/node-redis-clients.js';
import { redisScript } from '../../../lib/backends/redis/connection/redis-script.js';
import { ScriptRunner } from '../../../lib/backends/redis/connection/script-runner.js';
import { VersionsInUse } from '../../../lib/backends/redis/connection/versions-in-use.js';
import { LockInspection } from '../../../lib/backends/redis/locks/lock-inspection.js';
import { LockKeys } from '../../../lib/backends/redis/locks/redis-lock-keys.js';
import { RENEW } from '../../../lib/backends/redis/locks/release.lua.js';
import { eventually } from '../../support/eventually.js';

const SCRIPT = redisScript('return 1');
const EncodedCommand = encodedCommandClass(Command);
const IGNORED = { settled: () => {}, rejected: () => {} };

function encodedCommand(request: Omit<ScriptRequest, 'script'>, reader = IGNORED): Command {
  const call = { script: SCRIPT, ...request };
  const encoded = encodedCall(call);
  if (!encoded) throw new Error('an argument is bytes');
  const sent = { request: call, call: { settle: () => {}, fail: () => {} }, batch: undefined, id: 'one:7' };
  return new EncodedCommand(encoded, sent, reader);
}

it.each(['name', 'Straße', '名前', '🔒'])('encodes %s as the client does', (name) => {
  const encoded = encodedCommand({ keys: [`{${name}}`, 'key'], args: [name, 1.5, 1_760_000_000_000_128] });
  const parts = [SCRIPT.sha1, 2, `{${name}}`, 'key', name, 1.5, 1_760_000_000_000_128, 'one:7'];
  const usual = new Command('evalsha', parts);
  expect(encoded.toWritable({})).toBe(usual.toWritable({}));
});

it('encodes the arguments for a call that is alone', () => {
  const encoded = encodedCommand({ keys: ['key'], args: ['ticket', 1], aloneArgs: ['ticket'] });
  const usual = new Command('evalsha', [SCRIPT.sha1, 1, 'key', 'ticket', 'one:7']);
  expect(encoded.toWritable({})).toBe(usual.toWritable({}));
});

it('does not encode bytes', () => {
  expect(encodedCall({ script: SCRIPT, keys: ['key'], args: [Buffer.from('value')] })).toBeNull();
});

it('keeps an error of those who wait for the reply out of the client that reads it', () => {
  const later = jest.spyOn(globalThis, 'queueMicrotask').mockImplementation(() => {});
  try {
    const failure = new Error('of a listener');
    const settled = () => {
      throw failure;
    };
    const command = encodedCommand({ keys: [], args: [] }, { ...IGNORED, settled });
    expect(() => command.resolve(Buffer.from('reply'))).not.toThrow();
    expect(later.mock.calls).toHaveLength(1);
    expect(later.mock.calls[0]?.[0]).toThrow(failure);
  } finally {
    later.mockRestore();
  }
});

/** A client whose server answers EVALSHA with these errors, one after the other, and then with 7. */
function refusing(refusals: readonly string[], isCluster = false): { client: Redis; sent: () => number } {
  let sent = 0;
  const left = [...refusals];
  const call = async (_: string, args: readonly unknown[]) => {
    sent += 1;
    const refusal = left.shift();
    if (refusal !== undefined) throw new Error(refusal);
    return [args.at(-1), 7];
  };
  const client = { call, status: 'ready', isCluster, on: () => client, off: () => client };
  return { client: client as unknown as Redis, sent: () => sent };
}

it.each([
  'LOADING Redis is loading the dataset in memory',
  'TRYAGAIN Multiple keys request during rehashing of slot',
  'CLUSTERDOWN The cluster is down',
  'Too many Cluster redirections. Last error: ReplyError: TRYAGAIN Multiple keys request during rehashing of slot',
  "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
])('sends again what is refused with %s', async (refusal) => {
  const { client, sent } = refusing([refusal, refusal, refusal]);
  expect(await new ScriptRunner(client).run(RENEW, ['a', 'b'], [1, 2, 1])).toBe(7);
  expect(sent()).toBe(4);
});

it.each(['MOVED 866 127.0.0.1:7001', 'ASK 866 127.0.0.1:7001'])(
  'sends again what is refused with %s, where the client follows it',
  async (refusal) => {
    const cluster = refusing([refusal], true);
    // What a client of a Cluster is, besides.
    Object.assign(cluster.client, { options: {}, sendCommand: () => {} });
    expect(await new ScriptRunner(cluster.client).run(RENEW, ['a'], [1, 2, 1])).toBe(7);
    const alone = refusing([refusal]);
    await expect(new ScriptRunner(alone.client).run(RENEW, ['a'], [1, 2, 1])).rejects.toThrow(refusal);
    expect(alone.sent()).toBe(1);
  },
);

it.each([[[1]], [[1, 2, 3]], [7], ['OK'], [null]])('takes %j for no answer to two calls of a run', async (reply) => {
  const { client } = refusing([]);
  const call = async (_: string, args: readonly unknown[]) => [args.at(-1), args.includes('a') ? 7 : reply];
  const batch = new ScriptBatch(new ScriptRunner(Object.assign(client, { call })), RENEW);
  const [first, ...others] = ['a', 'b', 'c'].map(async (key) => batch.run('shared', [key], [1], String));
  expect(await first).toBe('7');
  for (const each of await Promise.allSettled(others)) expect(each).toMatchObject({ status: 'rejected' });
});

it('blames no proxy where the client queues a script for a MULTI, also of one that answers bytes', async () => {
  const { client } = refusing([]);
  const queued = async () => Buffer.from('QUEUED');
  const mixedUp = jest.fn();
  const runner = new ScriptRunner(Object.assign(client, { callBuffer: queued }), { onMixedUp: mixedUp });
  await expect(runner.runForBytes(RENEW, ['a'], [1])).rejects.toThrow('queues commands for a MULTI');
  expect(mixedUp).not.toHaveBeenCalled();
});

it('names the refusal while a command is being sent again', async () => {
  const { client } = refusing(['CLUSTERDOWN The cluster is down']);
  const runner = new ScriptRunner(client);
  const answer = runner.run(RENEW, ['a'], [1, 2, 1]);
  await eventually(() => runner.refusedForNow !== undefined);
  expect(runner.refusedForNow?.message).toBe('CLUSTERDOWN The cluster is down');
  expect(await answer).toBe(7);
  expect(runner.refusedForNow).toBeUndefined();
});

it('sends any other command again, too', async () => {
  const refusals = ['LOADING Redis is loading the dataset in memory', 'CLUSTERDOWN The cluster is down'];
  const { client } = refusing([]);
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
  const loading = refusing(Array.from({ length: 1_000 }, () => refusal));
  await expect(new ScriptRunner(loading.client).run(RENEW, [], [])).rejects.toThrow(refusal);
  expect(loading.sent()).toBeLessThan(30);
  const wrong = refusing(['WRONGTYPE Operation against a key holding the wrong kind of value']);
  await expect(new ScriptRunner(wrong.client).run(RENEW, [], [])).rejects.toThrow('WRONGTYPE');
  expect(wrong.sent()).toBe(1);
});

describe('the versions in use', () => {
  const MINUTE = 60_000;

  let client: { status: string; options: object };
  let answer: readonly string[];
  let noted: string[];
  let notices: Notice[];
  let versions: VersionsInUse;

  beforeEach(() => {
    jest.useFakeTimers();
    client = { status: 'ready', options: {} };
    answer = [];
    noted = [];
    notices = [];
    const run = async (_script: unknown, [key = '']: readonly string[]) => {
      noted.push(key);
      return answer;
    };
    const scripts = { client, run } as unknown as ScriptRunner;
    versions = new VersionsInUse(scripts, (notice) => notices.push(notice), { version: 2, earliest: 2 });
  });
  afterEach(() => {
    versions.close();
    jest.useRealTimers();
  });

  it('notes the version once a minute for each key, until it is closed', async () => {
    await versions.note('one', 'locks');
    await versions.note('two', 'locks');
    expect(noted).toEqual(['one', 'two']);
    await jest.advanceTimersByTimeAsync(MINUTE);
    expect(noted).toEqual(['one', 'two', 'one', 'two']);
    versions.close();
    await versions.note('three', 'locks');
    await jest.advanceTimersByTimeAsync(10 * MINUTE);
    expect(noted).toHaveLength(4);
  });

  it('notes nothing while there is no connection', async () => {
    await versions.note('one', 'locks');
    client.status = 'reconnecting';
    await jest.advanceTimersByTimeAsync(5 * MINUTE);
    expect(noted).toEqual(['one']);
    client.status = 'ready';
    await jest.advanceTimersByTimeAsync(MINUTE);
    expect(noted).toEqual(['one', 'one']);
  });

  it('warns within a minute of a version that comes later, once', async () => {
    await versions.note('one', 'locks');
    answer = ['1', '1'];
    await jest.advanceTimersByTimeAsync(MINUTE);
    expect(notices.map(({ message }) => message)).toEqual([expect.stringMatching(/protocol 1 use the same locks/)]);
    await jest.advanceTimersByTimeAsync(5 * MINUTE);
    expect(notices).toHaveLength(1);
  });
});

/** Answers every look at a lock with the same holder and waiters, and counts what is read besides. */
class CountingScripts {
  readonly read: string[] = [];

  async run(_: unknown, keys: readonly string[]): Promise<unknown> {
    if (keys.length === 1) {
      this.read.push(keys[0] as string);
      return keys[0]?.includes('one') ? 'web-1' : 'web-2';
    }
    const waiters = [
      ['two:1', ''],
      ['one:2', '0'],
      ['foreign', ''],
    ];
    return ['one:1', 30_000, '8', 2, 0, waiters];
  }
}

it('reads the label of each process once for the locks of a page', async () => {
  const scripts = new CountingScripts();
  const inspection = new LockInspection(scripts as unknown as ScriptRunner, new LockKeys(undefined));
  const page = Array.from({ length: 50 }, (_, index) => inspection.inspect(`order:${index}`));
  for (const state of await Promise.all(page)) {
    expect(state).toMatchObject({
      label: 'web-1',
      waiters: [
        { ticket: 'two:1', label: 'web-2', mode: 'write' },
        { ticket: 'one:2', label: 'web-1', mode: 'read' },
        { ticket: 'foreign', mode: 'write' },
      ],
    });
  }
  expect(scripts.read).toEqual(['lock:{one}:label', 'lock:{two}:label']);
  await inspection.inspect('order:7');
  expect(scripts.read).toHaveLength(4);
});

const LISTENER = {
  onInvalidated: () => {},
  onLoadEnded: () => {},
  onTagInvalidated: () => {},
  onPrefixInvalidated: () => {},
  onDeletionScheduled: () => {},
  onDisconnected: () => {},
  onConnected: () => {},
};

it('leaves no listener on a Cluster of the user that never had a node', () => {
  const cluster = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true });
  const before = cluster.listenerCount('+node');
  const bus = new RedisCacheBus(new ScriptRunner(cluster), 'cache:bus');
  bus.listen(LISTENER);
  expect(cluster.listenerCount('+node')).toBe(before + 1);
  bus.close();
  expect(cluster.listenerCount('+node')).toBe(before);
  cluster.disconnect();
});

const open = () => createClient({ url: 'redis://127.0.0.1:1' });

it.each([0, Infinity])('leaves a limit of %s listeners as it is', async (limit) => {
  const clients = [open(), open(), open()];
  for (const client of clients) client.setMaxListeners(limit);
  const backend = redlock(clients);
  expect(clients.map((client) => client.getMaxListeners())).toEqual([limit, limit, limit]);
  await backend.close?.();
  expect(clients.map((client) => client.getMaxListeners())).toEqual([limit, limit, limit]);
});

it('lowers the limit of listeners that it has raised', async () => {
  const clients = [open(), open(), open()];
  const before = clients.map((client) => client.getMaxListeners());
  const backend = redlock(clients);
  expect(clients[0]?.getMaxListeners()).toBeGreaterThan(before[0] ?? Infinity);
  await backend.close?.();
  expect(clients.map((client) => client.getMaxListeners())).toEqual(before);
});

it.each([0, 1, Infinity])('closes after the application has set a limit of %s listeners', async (limit) => {
  const clients = [open(), open(), open()];
  const backend = redlock(clients);
  for (const client of clients) client.setMaxListeners(limit);
  await backend.close?.();
  expect(clients.map((client) => client.getMaxListeners())).toEqual([limit, limit, limit]);
});

it('sends no command by a Sentinel client that would hide a lost connection', async () => {
  const sentinel = createSentinel({ name: 'main', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] });
  const later = new Proxy(sentinel, { get: (of, name) => (name === '_execute' ? undefined : Reflect.get(of, name)) });
  const sent = onMaster(later as unknown as NodeRedisSentinel, () => Promise.resolve('sent'));
  await expect(sent).rejects.toThrow(/none of node-redis 5 or 6.*use one of these, or an ioredis client/);
});

it('leaves no listener on a master to which node-redis sends again after the application has ended', async () => {
  const master = Object.assign(new EventEmitter(), { sendCommand: () => Promise.resolve('PONG') });
  let again = () => Promise.resolve<unknown>(undefined);
  const sentinel = Object.assign(new EventEmitter(), {
    isOpen: true,
    getMasterNode: () => ({ host: '127.0.0.1', port: 1 }),
    getSentinelNode: () => undefined,
    _execute: (_isReadonly: boolean, send: (client: typeof master) => Promise<unknown>) =>
      (again = () => send(master))(),
  });
  const client = adapted(sentinel as unknown as NodeRedisSentinel);
  await client.ping();
  expect(master.eventNames()).toEqual(['error', 'end']);
  client.disconnect();
  await again();
  expect(master.eventNames()).toEqual([]);
});
