import type { Lock } from 'nest-redis-lock';
import { granted, grantMessage, type Command } from '../../support/scripted-backend.js';
import {
  app,
  backend,
  contenders,
  NAME,
  openChannel,
  quiet,
  startContender,
} from '../../support/contender-at-backend.js';

startContender();

/** A hold that read inside of one that wrote, which has ended; a message reported the grant to the latter. */
async function readingOn() {
  await openChannel();
  let lock: Lock | undefined;
  const written = app.locks.withLock(NAME, { wait: 10_000 }, async () => {
    lock = await app.locks.acquire(NAME, { mode: 'read' });
  });
  const enqueue = await backend.take('enqueue');
  const { ticket } = enqueue;
  await backend.tell(grantMessage(ticket, NAME, { claim: 5_000 }));
  await written;
  await backend.take('downgrade');
  return { lock: lock as Lock, ticket, enqueue };
}

/** Whether the reader has the lock until it releases it, in one request. */
async function expectUntouched({ lock, ticket }: { lock: Lock; ticket: string }): Promise<void> {
  await quiet();
  expect(backend.releases).toEqual([]);
  expect(lock.held).toBe(true);
  await lock.release();
  expect(backend.releases).toEqual([ticket]);
  expect(contenders()).toBe(0);
}

describe('a lock that its writer has left to a reader', () => {
  it.each<[string, (enqueue: Command<'enqueue'>) => Promise<void>]>([
    ['the answer to the request arrives', (enqueue) => enqueue.answer(granted({ first: 9_000 }))],
    ['the request fails', (enqueue) => enqueue.fail()],
  ])('is not released when %s after the message of the grant', async (_, arrives) => {
    const reading = await readingOn();
    await arrives(reading.enqueue);
    await expectUntouched(reading);
  });
});
