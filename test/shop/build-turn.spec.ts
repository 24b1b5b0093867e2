import { execFile } from 'node:child_process';
import { readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { removeDirectory, temporaryDirectory } from '../support/servers/temporary-directory.js';

const MODULE = new URL('../../tools/build-turn.mjs', import.meta.url).href;
const TAKE = 'const [mark] = process.argv.slice(1); await takeTurn(mark); console.log(process.pid)';

let folder: string;
let mark: string;
beforeEach(() => {
  folder = temporaryDirectory();
  mark = join(folder, 'building');
});
afterEach(() => removeDirectory(folder));

/** Answers the number of a process that took the turn and left its mark. */
async function takeTurn(timeout = 20_000): Promise<string> {
  const program = `import { takeTurn } from '${MODULE}'; ${TAKE}`;
  const args = ['--input-type=module', '-e', program, mark];
  return (await promisify(execFile)(process.execPath, args, { timeout })).stdout.trim();
}

it('marks the turn with the number of the process that builds', async () => {
  const builder = await takeTurn();
  expect(readFileSync(mark, 'utf8')).toBe(builder);
});

it('takes over the mark of a process that has ended', async () => {
  const killed = await takeTurn();
  const builder = await takeTurn();
  expect(builder).not.toBe(killed);
  expect(readFileSync(mark, 'utf8')).toBe(builder);
});

it('takes over a mark that a killed process has left empty', async () => {
  writeFileSync(mark, '');
  const minuteAgo = Date.now() / 1_000 - 60;
  utimesSync(mark, minuteAgo, minuteAgo);
  expect(await takeTurn()).toBe(readFileSync(mark, 'utf8'));
});

it('waits while the process of the mark runs', async () => {
  writeFileSync(mark, String(process.pid));
  await expect(takeTurn(1_500)).rejects.toMatchObject({
    killed: true,
    stderr: `Waiting while process ${process.pid} builds\n`,
  });
  expect(readFileSync(mark, 'utf8')).toBe(String(process.pid));
});
