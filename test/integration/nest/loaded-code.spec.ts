import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const PROGRAM = fileURLToPath(new URL('../../support/programs/locks-once.mjs', import.meta.url));

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'nest-redis-lock-loaded-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** The files that were loaded by an application that takes one lock; V8 tells them. */
async function filesLoaded(how: string, cache?: object | false): Promise<string> {
  const args = [PROGRAM, how, ...(cache === undefined ? [] : [JSON.stringify(cache)])];
  await promisify(execFile)(process.execPath, args, { env: { ...process.env, NODE_V8_COVERAGE: folder } });
  const reports = await Promise.all((await readdir(folder)).map((file) => readFile(join(folder, file), 'utf8')));
  const scripts = reports.flatMap((report) => (JSON.parse(report) as { result: { url: string }[] }).result);
  return scripts.map(({ url }) => url).join('\n');
}

describe.each(['import', 'require'])('with %s', (how) => {
  it('locks alone load no code of the cache', async () => {
    const loaded = await filesLoaded(how, false);
    expect(loaded).toMatch('/lock/lock.service.js');
    expect(loaded).not.toMatch(/\/cache-engine\.js|\/first-level\.js|\/lru-cache\/|\/msgpackr\//);
  });

  it('the main entry loads no client of another store than Redis', async () => {
    expect(await filesLoaded(how)).not.toMatch(/\/node_modules\/(pg|mysql2|@redis|node-zookeeper-client)[/-]/);
  });

  it('the main entry loads no code of the command line', async () => {
    const loaded = await filesLoaded(how);
    expect(loaded).toMatch('/lock/lock.service.js');
    expect(loaded).not.toMatch(/\/dist\/cli\/|\/node_modules\/(commander|cli-table3)\//);
  });

  it('a cache without a first level does not load its library', async () => {
    const loaded = await filesLoaded(how);
    expect(loaded).toMatch('/cache/cache-engine.js');
    expect(loaded).not.toMatch(/\/first-level\.js|\/lru-cache\/|\/msgpackr\//);
  });

  it.each([{ l1: {} }, { memory: {} }])('a cache with %j loads it', async (cache) => {
    expect(await filesLoaded(how, cache)).toMatch('/lru-cache/');
  });
});
