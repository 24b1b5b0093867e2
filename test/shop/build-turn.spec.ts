import { execFile } from 'node:child_process';
import { readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually } from '../support/eventually.js';
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

/** A process that prints its number once it has taken the turn and left its mark. */
function startTurn() {
  const program = `import { takeTurn } from '${MODULE}'; ${TAKE}`;
  return promisify(execFile)(process.execPath, ['--input-type=module', '-e', program, mark], { timeout: 60_000 });
}

/** Answers its number. */
async function takeTurn(): Promise<string> {
  return (await startTurn()).stdout.trim();
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
  const builder = startTurn();
  let told = '';
  builder.child.stderr?.on('data', (data: string) => (told += data));
  await eventually(() => told === `Waiting while process ${process.pid} builds\n`, { within: 60_000 });
  expect(readFileSync(mark, 'utf8')).toBe(String(process.pid));
  rmSync(mark);
  expect((await builder).stdout.trim()).toBe(readFileSync(mark, 'utf8'));
  expect(told).toBe(`Waiting while process ${process.pid} builds\n`);
}, 120_000);
