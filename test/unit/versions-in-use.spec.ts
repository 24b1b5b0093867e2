import { jest } from '@jest/globals';
import type { Notice } from '../../lib/contracts/store.js';
import type { ScriptRunner } from '../../lib/backends/redis/connection/script-runner.js';
import { VersionsInUse } from '../../lib/backends/redis/connection/versions-in-use.js';

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
