import type { AcquireAnswer, LockBackend } from '../../lib/contracts/lock-backend.js';
import { PolledQueue } from '../../lib/lock/line/polled-queue.js';

const TOKENS = { first: 1, count: 100 };
const GRANTED: AcquireAnswer = { status: 'granted', tokens: TOKENS, remaining: 10_000, waiting: undefined };
const BUSY: AcquireAnswer = { status: 'busy', name: 'stock', owner: '', remaining: Infinity };

let asked: string[];
let answers: AcquireAnswer[];
let queue: PolledQueue;
let now: number;
const { now: realNow } = performance;
beforeEach(() => {
  [asked, answers, now] = [[], [], 1_000];
  performance.now = () => now;
  const acquire = async ({ names }: { names: readonly string[] }) => {
    asked.push(names[0] as string);
    return answers.shift() ?? GRANTED;
  };
  queue = new PolledQueue({ acquire } as unknown as LockBackend);
});
afterEach(() => {
  performance.now = realNow;
});

const ticket = { name: 'stock', ticket: 'p:1', ttl: 10_000 };
const enqueue = (patient = true) => Promise.resolve(queue.enqueue({ ...ticket, claim: 1_000, patient }));
const beat = () => Promise.resolve(queue.beat(ticket));
/** The range of what is drawn at random. */
function paces(name = 'stock'): [least: number, most: number] {
  const drawn = Array.from({ length: 300 }, () => queue.pace({ name }));
  return [Math.min(...drawn), Math.max(...drawn)];
}
function expectPaces(least: number, most: number): void {
  const [lowest, highest] = paces();
  expect(lowest).toBeGreaterThanOrEqual(least);
  expect(lowest).toBeLessThan(least + 2);
  expect(highest).toBeLessThanOrEqual(most);
  expect(highest).toBeGreaterThan(most - 2);
}

it('a waiter tries every 5 to 25 ms', () => {
  expectPaces(5, 25);
});

it('after its turn, a process asks later than those that wait try again', async () => {
  queue.giveWay({ name: 'stock' });
  const pause = queue.pace({ name: 'stock' });
  expect(pause).toBeGreaterThanOrEqual(30);
  expect(pause).toBeLessThanOrEqual(50);
  expect(await enqueue()).toMatchObject({ status: 'busy', remaining: Infinity });
  expect(asked).toEqual([]);
  // One that does not wait asks at once, as those for other names do.
  void queue.enqueue({ ...ticket, claim: undefined, patient: true });
  void queue.enqueue({ ...ticket, name: 'other', claim: 1_000, patient: true });
  void queue.enqueue({ ...ticket, prefix: 'shop', claim: 1_000, patient: true });
  expect(asked).toEqual(['stock', 'other', 'stock']);
  now += pause;
  expect(await enqueue()).toMatchObject({ status: 'granted' });
});

it('after its turn, a process asks at once for a caller that would not wait for long enough', async () => {
  queue.giveWay({ name: 'stock' });
  expect(await enqueue(false)).toMatchObject({ status: 'granted' });
  expect(asked).toEqual(['stock']);
});

it('a process tries the more often the longer its turn is over, until as many have had theirs as it can tell', () => {
  queue.giveWay({ name: 'stock' });
  now += 60;
  expectPaces(15, 25);
  now += 80;
  expectPaces(5, 10);
  now += 400;
  expectPaces(5, 25);
});

it('a grant says of those that wait what the store does', async () => {
  answers.push(BUSY, GRANTED, { ...GRANTED, waiting: 0 });
  await beat();
  expect(await beat()).toMatchObject({ waiting: undefined });
  expect(await beat()).toMatchObject({ waiting: 0 });
});

it('names are forgotten once they are no longer contended', async () => {
  for (let index = 0; index < 1_000; index += 1) {
    queue.giveWay({ name: `n${index}` });
    now += 1;
  }
  const { turns } = queue as unknown as { turns: { turns: Map<string, unknown> } };
  expect(turns.turns.size).toBeLessThanOrEqual(500);
});
