import { DrivenClock } from '../support/driven-clock.js';
import { startLockServices, type LockServices } from '../support/lock-services.js';
import { busy, ScriptedBackend } from '../support/scripted-backend.js';

const clock = new DrivenClock();
let backend: ScriptedBackend;
let app: LockServices;
let controller: AbortController;

beforeEach(async () => {
  clock.start();
  controller = new AbortController();
  backend = new ScriptedBackend(clock);
  app = await startLockServices({ backend, commandTimeout: 3_000, shutdownGrace: 0 });
});
afterEach(async () => {
  backend.giveUp();
  await clock.settle(app.close());
  clock.stop();
});

/** A call that waits in the queue although the channel could not be opened. */
async function waitsWithoutChannel(): Promise<{ givenUp: Promise<unknown> }> {
  backend.atOnce.listen = () => new Error('refused');
  const { signal } = controller;
  const givenUp = app.locks.acquire('job', { wait: Infinity, ttl: 1_000, signal }).catch(() => {});
  await (await backend.take('enqueue')).answer(busy());
  const queued = await backend.take('enqueue');
  expect(queued.request.claim).toBe(1_000);
  await queued.answer(busy());
  return { givenUp };
}

/** Lets the waiting ticket send heartbeats for `ms`. */
async function beatFor(ms: number): Promise<void> {
  const beats = Math.ceil(ms / 500);
  for (let beat = 0; beat < beats; beat++) {
    await clock.pass(500);
    await (await backend.take('beat')).answer(busy());
  }
}

it('is opened again, after a pause, while a caller waits', async () => {
  const { givenUp } = await waitsWithoutChannel();
  expect(backend.all('listen')).toHaveLength(1);
  delete backend.atOnce.listen;
  await beatFor(1_500);
  expect(backend.all('listen')).toHaveLength(2);
  controller.abort();
  await givenUp;
});

it('is not opened again once it is open', async () => {
  const { givenUp } = await waitsWithoutChannel();
  backend.atOnce.listen = () => {};
  await beatFor(4_000);
  expect(backend.all('listen')).toHaveLength(2);
  controller.abort();
  await givenUp;
});
