import { get } from 'node:http';
import pg from 'pg';
import { eventually } from '../../support/eventually.js';
import { isRunning } from '../../support/is-running.js';
import { LiveDemo } from '../../support/live-demo.js';
import { startPostgresServer, type PostgresServer } from '../../support/servers/postgres-server.js';
import { Viewer } from './viewer.js';

const SMALL = { strategy: 'lock', backend: 'redis', instances: 2, stock: 60, orders: 150, concurrency: 20 };
/** Longer than any test; each ends it. */
const LONG = { ...SMALL, strategy: 'fenced', stock: 500_000, orders: 500_000 };

let postgres: PostgresServer;
let database: pg.Pool;
let demo: LiveDemo;
let viewer: Viewer;

beforeAll(async () => {
  postgres = await startPostgresServer();
  database = new pg.Pool({ connectionString: postgres.url });
  demo = await LiveDemo.start(['--instances', '2'], { DATABASE_URL: postgres.url });
  viewer = await Viewer.open(demo.url);
}, 240_000);
afterEach(async () => {
  // A sale that a failed test has left would disturb the next.
  await demo.post('/sales/stop');
  for (const { number } of viewer.state.processes) await demo.post(`/processes/${number}/repair`);
  await viewer.until(() => viewer.state.phase === 'idle');
});
afterAll(async () => {
  viewer[Symbol.dispose]();
  await demo.interrupt();
  await database.end();
  await postgres.stop();
});

async function startSale(settings: object): Promise<void> {
  expect((await demo.post('/sales', settings)).status).toBe(202);
  await viewer.until(() => viewer.state.phase === 'selling' && (viewer.state.sale?.accepted ?? 0) > 0);
}

async function refusalOf(answer: Promise<Response>): Promise<{ status: number; message: string }> {
  const response = await answer;
  return { status: response.status, message: ((await response.json()) as { message: string }).message };
}

it('serves a page that loads nothing from elsewhere', async () => {
  const response = await fetch(`${demo.url}/`);
  const page = await response.text();
  expect(response.headers.get('content-security-policy')).toContain("default-src 'none'");
  const sources = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, source]) => source as string);
  expect(sources).toEqual(expect.arrayContaining(['/styles.css', '/charts/chart.umd.min.js', '/browser/main.js']));
  for (const source of sources.filter((each) => each !== 'data:,')) {
    expect(source).toMatch(/^\//);
    expect((await fetch(demo.url + source)).status).toBe(200);
  }
});

it('sells the stock while the page watches it fall', async () => {
  const stocks = new Set<number>();
  const watching = setInterval(() => stocks.add(viewer.state.sale?.stockLeft ?? -1), 10);
  await startSale({ ...SMALL, stock: 300, orders: 600 });
  await viewer.until(() => viewer.state.phase === 'idle');
  clearInterval(watching);
  expect(viewer.seen.results?.at(-1)).toMatchObject({ accepted: 300, stockLeft: 0, oversold: 0, lost: 0, sound: true });
  expect(viewer.state.sale).toMatchObject({ stockLeft: 0, accepted: 300, outOfStock: 300, open: 0 });
  expect([...stocks].some((stock) => stock > 0 && stock < 300)).toBe(true);
  expect(viewer.state.lock?.grants.length).toBeGreaterThan(0);
  const tokens = viewer.state.lock?.grants.map(({ token }) => token) ?? [];
  expect(tokens).toEqual(tokens.toSorted((one, other) => other - one));
});

it('shows how many pieces an unprotected shop sells too many', async () => {
  await startSale({ ...SMALL, strategy: 'none', orders: 300, concurrency: 40 });
  await viewer.until(() => viewer.state.phase === 'idle');
  const { accepted = 0, oversold } = viewer.seen.results?.at(-1) ?? {};
  expect(accepted).toBeGreaterThan(SMALL.stock);
  expect(oversold).toBe(accepted - SMALL.stock);
  expect(viewer.state.sale?.oversold).toBe(oversold);
});

it('refuses a second sale while there is one, and ends the first on demand', async () => {
  await startSale(LONG);
  expect(await refusalOf(demo.post('/sales', SMALL))).toEqual({
    status: 409,
    message: 'A sale is under way: wait until it ends, or end it, then start the next one',
  });
  expect((await demo.post('/sales/stop')).status).toBe(202);
  await viewer.until(() => viewer.state.phase === 'idle');
  expect(viewer.seen.results?.at(-1)).toMatchObject({ ending: 'stopped', oversold: 0 });
  expect(await refusalOf(demo.post('/sales/stop'))).toEqual({ status: 409, message: 'No sale is under way' });
});

it('gives a page that connects again the present state, and keeps nothing of a closed one', async () => {
  await startSale(LONG);
  await viewer.until(() => (viewer.state.sale?.seconds ?? 0) > 1);
  const pages = await Promise.all(Array.from({ length: 5 }, () => Viewer.open(demo.url)));
  await viewer.until(() => viewer.state.viewers === 6);
  for (const page of pages) {
    expect(page.state).toMatchObject({ phase: 'selling', sale: { settings: LONG } });
    expect(page.seen.course?.length).toBeGreaterThan(3);
    expect(page.log.at(-1)).toMatch(/^Sale \d+ \(fenced\): 500000 orders for 500000 pieces$/);
    page[Symbol.dispose]();
  }
  await viewer.until(() => viewer.state.viewers === 1);
});

it('kills a process in mid-sale and starts it again, and the others go on', async () => {
  await startSale(LONG);
  const pid = viewer.state.processes[0]?.pid as number;
  expect((await demo.post('/processes/1/kill')).status).toBe(204);
  expect(isRunning(pid)).toBe(false);
  await viewer.until(() => viewer.state.processes[0]?.condition === 'dead');
  const { accepted } = viewer.state.sale as { accepted: number };
  await viewer.until(() => (viewer.state.sale?.accepted ?? 0) > accepted + 5);
  expect((await demo.post('/processes/1/freeze')).status).toBe(409);
  expect((await demo.post('/processes/1/repair')).status).toBe(204);
  await viewer.until(() => viewer.state.processes[0]?.condition === 'running');
  await viewer.until(() => (viewer.state.processes[0]?.accepted ?? 0) > 0);
  expect(viewer.state.processes[0]?.pid).not.toBe(pid);
  process.kill(viewer.state.processes[1]?.pid as number, 'SIGKILL');
  await viewer.until(() => viewer.state.processes[1]?.condition === 'dead');
  await demo.post('/sales/stop');
  await viewer.until(() => viewer.state.phase === 'idle');
  expect(viewer.seen.results?.at(-1)).toMatchObject({ oversold: 0, faults: ['killed process 1'] });
  // A machine that is busy may also tell of seconds without an answer.
  const told = viewer.log.filter((line) => !line.includes('no order was answered'));
  expect(told.slice(-4, -1)).toEqual(['You killed process 1', 'Process 1 was started again', 'Process 2 has ended']);
});

it('shows the stale write of a process that was frozen while it held the lock, and that the row refuses it', async () => {
  await startSale(LONG);
  await freezeHolderAfterItsRead();
  const isFrozen = ({ condition }: { condition: string }) => condition === 'frozen';
  // The page learns of it after the answer to who asked for it.
  await viewer.until(() => viewer.state.processes.some(isFrozen));
  const frozen = viewer.state.processes.find(isFrozen)?.number;
  await viewer.until(() => typeof viewer.state.lock?.holder === 'number' && viewer.state.lock.holder !== frozen);
  const { accepted } = viewer.state.sale as { accepted: number };
  await viewer.until(() => (viewer.state.sale?.accepted ?? 0) > accepted);
  expect((await demo.post(`/processes/${frozen}/repair`)).status).toBe(204);
  await viewer.until(() => viewer.state.sale?.refusals['409 STALE_FENCING_TOKEN'] === 1);
  expect(viewer.log).toContain(
    `Stale write refused: the row has seen a higher fencing token than that of process ${frozen}`,
  );
  await demo.post('/sales/stop');
  await viewer.until(() => viewer.state.phase === 'idle');
  expect(viewer.seen.results?.at(-1)).toMatchObject({ staleWrites: 1, oversold: 0 });
});

/** The row is locked while the holder reads it, so that it is surely frozen between its read and its write. */
async function freezeHolderAfterItsRead(): Promise<void> {
  const { rows } = await database.query<{ name: string }>(
    "SELECT table_schema AS name FROM information_schema.tables WHERE table_name = 'products'",
  );
  const sku = `teapot-${viewer.state.sale?.number}-fenced`;
  const connection = await database.connect();
  try {
    for (;;) {
      await connection.query('BEGIN');
      await connection.query(`SELECT FROM ${rows[0]?.name}.products WHERE sku = $1 FOR UPDATE`, [sku]);
      const statement = await eventually(waitingStatement);
      const reads = statement.startsWith('UPDATE products SET fence');
      const answer = reads ? await demo.post('/holder/freeze') : undefined;
      await connection.query('ROLLBACK');
      if (answer?.status === 204) return;
    }
  } finally {
    connection.release();
  }
}

async function waitingStatement(): Promise<string | undefined> {
  const { rows } = await database.query<{ query: string }>(
    "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE products%'",
  );
  return rows[0]?.query;
}

it('cuts a process off from the locks, which then come to the other one, and connects it again', async () => {
  await startSale({ ...LONG, strategy: 'lock' });
  expect((await demo.post('/processes/1/cut-off')).status).toBe(204);
  await viewer.until(() => viewer.state.lock?.holder === 2);
  const before = viewer.state.processes.map(({ accepted }) => accepted);
  await viewer.until(() => (viewer.state.processes[1]?.accepted ?? 0) > (before[1] ?? 0) + 20);
  expect((await demo.post('/processes/1/repair')).status).toBe(204);
  await viewer.until(() => (viewer.state.processes[0]?.accepted ?? 0) > (before[0] ?? 0));
  await demo.post('/sales/stop');
  await viewer.until(() => viewer.state.phase === 'idle');
  expect(viewer.seen.results?.at(-1)).toMatchObject({ oversold: 0, faults: ['cut off process 1'] });
});

it('stops Redis and starts it again, and the sale goes on', async () => {
  await startSale(LONG);
  expect((await demo.post('/redis/stop')).status).toBe(204);
  await viewer.until(() => viewer.state.redis === 'stopped' && viewer.state.lock?.unknown !== undefined);
  expect((await demo.post('/redis/start')).status).toBe(204);
  await viewer.until(() => viewer.state.redis === 'running');
  const { accepted } = viewer.state.sale as { accepted: number };
  await viewer.until(() => (viewer.state.sale?.accepted ?? 0) > accepted + 5);
  await demo.post('/sales/stop');
  await viewer.until(() => viewer.state.phase === 'idle');
  expect(viewer.seen.results?.at(-1)).toMatchObject({ oversold: 0, faults: ['stopped Redis'] });
});

it('refuses settings that the command line refuses, and unknown ones', async () => {
  const refused = [
    [{ ...SMALL, instances: 33 }, 'instances: give a whole number from 1 to 32'],
    [{ ...SMALL, stock: -1 }, 'stock: give a whole number from 0 to 1000000'],
    [{ ...SMALL, orders: 0.5 }, 'orders: give a whole number from 1 to 1000000'],
    [{ ...SMALL, concurrency: '20' }, 'concurrency: give a whole number from 1 to 2000'],
    [{ ...SMALL, strategy: 'hope' }, 'strategy must be one of the following values: none, lock,'],
    [{ ...SMALL, colour: 'red' }, 'property colour should not exist'],
  ] as const;
  for (const [settings, message] of refused) {
    const { status, message: said } = await refusalOf(demo.post('/sales', settings));
    expect({ status, said }).toEqual({ status: 400, said: expect.stringContaining(message) });
  }
  expect((await demo.post('/processes/9/kill')).status).toBe(404);
  expect((await demo.post('/processes/one/kill')).status).toBe(400);
  expect(viewer.state.phase).toBe('idle');
});

it('refuses changes from another origin, and other names for its address', async () => {
  for (const headers of [
    { origin: 'https://example.org' },
    { origin: 'null' },
    { origin: demo.url, 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ]) {
    expect((await demo.post('/sales', SMALL, headers as Record<string, string>)).status).toBe(403);
  }
  expect(await statusOfHost('example.org')).toBe(403);
  expect(await statusOfHost(new URL(demo.url).host)).toBe(200);
  expect(viewer.state.phase).toBe('idle');
  const own = { origin: demo.url, 'sec-fetch-site': 'same-origin' };
  expect((await demo.post('/sales', SMALL, own)).status).toBe(202);
  await viewer.until(() => viewer.state.phase !== 'idle');
});

function statusOfHost(host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    get(demo.url, { headers: { host } }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on('error', reject);
  });
}
