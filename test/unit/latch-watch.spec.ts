import type { LockBackend } from '../../lib/contracts/lock-backend.js';
import type { LatchListener, PrimitiveStoreProvider } from '../../lib/contracts/primitive-stores.js';
import { memory } from '../../lib/backends/memory/memory-lock-backend.js';
import { CountDownLatch } from '../../lib/primitives/latch/count-down-latch.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { startLockServices } from '../support/lock-services.js';

it('goes on waiting after a message about an earlier latch of the same name', async () => {
  const backend = memory() as LockBackend & PrimitiveStoreProvider;
  const inner = backend.openPrimitiveStores(undefined);
  const listeners: LatchListener[] = [];
  let looks = 0;
  const latches = {
    ...inner.latches,
    listen: (listener: LatchListener) => {
      listeners.push(listener);
      inner.latches.listen(listener);
    },
    look: async (name: string, process?: string) => {
      const state = await inner.latches.look(name, process);
      looks += 1;
      return state;
    },
  };
  backend.openPrimitiveStores = () => ({ ...inner, latches });
  await using app = await startLockServices({ backend });
  const latch = new CountDownLatch(new PrimitiveRuntime(app.backends));
  await latch.define('again', { count: 1, ttl: '1m' });
  let opened = false;
  const waiting = latch.await('again', { wait: '1m' }).then(() => (opened = true));
  await eventually(() => looks === 1);
  listeners[0]?.onOpen('again');
  await eventually(() => looks === 2);
  await new Promise(setImmediate);
  expect(opened).toBe(false);
  await latch.countDown('again');
  await waiting;
});

it('does not refuse a call by the answer to a look that was sent before it', async () => {
  const backend = memory() as LockBackend & PrimitiveStoreProvider;
  const inner = backend.openPrimitiveStores(undefined);
  const answered = new Gate();
  let looks = 0;
  const latches = {
    ...inner.latches,
    listen: () => {},
    look: async (name: string, process?: string) => {
      looks += 1;
      const state = await inner.latches.look(name, process);
      if (looks === 1) await answered.opened;
      return state;
    },
  };
  backend.openPrimitiveStores = () => ({ ...inner, latches });
  await using app = await startLockServices({ backend });
  const latch = new CountDownLatch(new PrimitiveRuntime(app.backends));
  await latch.define('look', { count: 1, ttl: '1m' });
  const first = latch.await('look', { wait: '1m' });
  await eventually(() => looks === 1);
  await latch.countDown('look');
  const second = latch.await('look', { wait: 0 });
  answered.open();
  await Promise.all([first, second]);
});

it('refuses each call once the application has ended', async () => {
  const app = await startLockServices({ backend: memory() });
  const latch = new CountDownLatch(new PrimitiveRuntime(app.backends));
  await latch.define('ended', { count: 1, ttl: '1m' });
  await app.close();
  for (const call of [
    () => latch.define('ended', { count: 1, ttl: '1m' }),
    () => latch.countDown('ended'),
    () => latch.count('ended'),
    () => latch.await('ended'),
  ]) {
    await expect(call()).rejects.toMatchObject({
      code: 'PRIMITIVE_BACKEND',
      message: expect.stringMatching(/latch "ended" failed: the application (has ended|is shutting down)/) as string,
    });
  }
});
