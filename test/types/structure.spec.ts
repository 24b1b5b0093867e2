import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));
const MOST_FILES = 20;

const FILES = readdirSync(join(REPOSITORY, 'lib'), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map(({ parentPath, name }) => ({ folder: relative(REPOSITORY, parentPath), name }));

it('no folder of the library has more than 20 files', () => {
  expect(FILES.length).toBeGreaterThan(300);
  const counts = new Map<string, number>();
  for (const { folder } of FILES) counts.set(folder, (counts.get(folder) ?? 0) + 1);
  expect([...counts].filter(([, count]) => count > MOST_FILES)).toEqual([]);
});

it('the architecture page names files and folders that exist', () => {
  const page = readFileSync(join(REPOSITORY, 'docs/architecture.md'), 'utf8');
  const files = FILES.map(({ folder, name }) => `/${folder}/${name}`);
  const exists = (path: string) =>
    files.some((file) => (path.endsWith('/') ? file.includes(`/${path}`) : file.endsWith(`/${path}`)));
  const named = [...page.matchAll(/`((?:[\w-]+\/)*[\w.-]+\.ts|(?:[\w-]+\/)+)`/g)].map(([, path]) => path as string);
  const ofTests = readdirSync(join(REPOSITORY, 'test')).map((folder) => `${folder}/`);
  expect(named.length).toBeGreaterThan(30);
  expect(named.filter((path) => !ofTests.includes(path) && !exists(path))).toEqual([]);
});
