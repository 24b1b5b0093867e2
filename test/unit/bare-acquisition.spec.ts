import { memory } from '../../lib/backends/memory/memory-lock-backend.js';
import { LockKeyError } from '../../lib/errors/lock-errors.js';
import { Gate } from '../support/gate.js';
import { startLockServices, type LockServices } from '../support/lock-services.js';

/** More acquisitions than a chain keeps of those that have ended. */
const MANY = 40;

let app: LockServices;

beforeEach(async () => {
  app = await startLockServices({ backend: memory() });
});
afterEach(() => app.close());

it('is not released by name in a branch after a later acquire of the name failed', async () => {
  const { locks } = app;
  const many = new Gate();
  const held = await locks.acquire('name');
  expect(await locks.tryAcquire('name')).toBeNull();
  const other = await locks.acquire('other');
  const branch = (async () => {
    await many.opened;
    await locks.release('name');
  })();
  for (let number = 0; number < MANY; number++) expect(await locks.tryAcquire('name')).toBeNull();
  many.open();
  await expect(branch).rejects.toBeInstanceOf(LockKeyError);
  expect(held.held).toBe(true);
  await other.release();
  await held.release();
});
