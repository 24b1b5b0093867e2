import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MurLockModule, MurLockService } from 'murlock';
import { LockService } from 'nest-redis-lock';
import { gate, startWith, url } from './kit.mjs';
import { Users } from './murlock/src/both.js';
import { expectExclusion } from './side-by-side.mjs';

const process = () =>
  startWith({
    imports: [MurLockModule.forRoot({ redisOptions: { url }, wait: 10, maxAttempts: 1, logLevel: 'error' })],
    providers: [Users],
  });
const app = await process();
const murlock = app.get(MurLockService);

test('runWithLock by the key of this package excludes ours, and is excluded', async () => {
  await expectExclusion(async () => {
    const body = gate();
    const running = murlock.runWithLock('lock:{a}', 5000, body.pass);
    await Promise.race([body.entered, running]);
    return async () => {
      body.open();
      await running;
    };
  });
});

test('the method of the page takes the key of @MurLock, and ours', async () => {
  const body = gate();
  const renaming = app.get(Users).rename('7', body.pass);
  await body.entered;
  const other = await process();
  await assert.rejects(other.get(MurLockService).runWithLock('Users:rename:7', 5000, async () => {}));
  assert.equal(await other.get(LockService).tryAcquire('Users.rename:7'), null);
  body.open();
  await renaming;
});
