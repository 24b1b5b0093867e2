import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const PROGRAM = fileURLToPath(new URL('main.mjs', import.meta.url));

interface Row {
  title: string;
  pings: number;
  bareLocks: number;
  bareReads: number;
  writes: number;
  commands: number;
}

const MEASURED = [
  'PING',
  'SET NX + EVALSHA, bare',
  'GET + SET, bare',
  'lock',
  'lock, the same name again',
  'lock, three names',
  "lock, release: 'background'",
  "lock, three names, release: 'background'",
  "lock, linger: '100ms', used again",
  "lock, linger: '100ms', wanted elsewhere, until held",
  'cached hit',
  'set',
  'invalidate',
  'cold miss',
  'cold miss, with tags',
  "cold miss, consistency: 'strong'",
  'semaphore permit',
  "semaphore permit, release: 'background'",
  'rate limit',
  'idempotent call',
  'scheduled job',
];

it('measures each operation in round trips and bare commands, and counts what is sent for it', async () => {
  const rows = JSON.parse(await output('--rounds', '3', '--warm-up', '1', '--delay', '100', '--json')) as Row[];
  expect(rows.map(({ title }) => title)).toEqual(MEASURED);
  const ratios = rows.flatMap(({ pings, bareLocks, bareReads }) => [pings, bareLocks, bareReads]);
  expect(ratios.filter((ratio) => !(ratio > 0 && ratio < Infinity))).toEqual([]);
  const sentFor = (title: string) => {
    const { writes, commands } = rows.find((row) => row.title === title) as Row;
    return { writes, commands };
  };
  expect(sentFor('PING')).toEqual({ writes: 1, commands: 1 });
  expect(sentFor('SET NX + EVALSHA, bare')).toEqual({ writes: 2, commands: 2 });
  expect(sentFor('GET + SET, bare')).toEqual({ writes: 2, commands: 2 });
  expect(sentFor('cached hit')).toEqual({ writes: 1, commands: 1 });
});

it('refuses a delay that is none', async () => {
  await expect(output('--delay', 'long')).rejects.toThrow('Give a whole number from 0 to 1000000.');
});

async function output(...options: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM, ...options]);
  return stdout;
}
