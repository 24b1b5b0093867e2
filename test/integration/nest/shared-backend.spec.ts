import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { memory, RedisLockModule, type LockBackend, type StartRequest } from 'nest-redis-lock';
import { startLockApp } from '../../support/lock-app.js';

/** A backend that counts how often it was closed. */
function countedBackend() {
  const backend: LockBackend = memory();
  const count = { closed: 0 };
  const close = backend.close.bind(backend);
  backend.close = () => {
    count.closed += 1;
    return close();
  };
  return { backend, count };
}

it('is closed by the last of its modules, however often the others are closed', async () => {
  const { backend, count } = countedBackend();
  const [first, second] = [await startLockApp({ backend }), await startLockApp({ backend })];
  await first.close();
  await first.close();
  expect(count.closed).toBe(0);
  await (await second.locks.acquire('still open')).release();
  await second.close();
  expect(count.closed).toBe(1);
});

it('is closed although an application that was to share it failed to start', async () => {
  const { backend, count } = countedBackend();
  @Module({
    imports: [RedisLockModule.forRoot({ backend })],
    providers: [
      {
        provide: 'database',
        useFactory: () => {
          throw new Error('no database');
        },
      },
    ],
  })
  class Broken {}
  await expect(NestFactory.createApplicationContext(Broken, { logger: false, abortOnError: false })).rejects.toThrow(
    'no database',
  );
  const app = await startLockApp({ backend });
  await app.close();
  expect(count.closed).toBe(1);
});

it('learns that one of its modules has stopped', async () => {
  const { backend } = countedBackend();
  const requests: StartRequest[] = [];
  backend.start = async (request) => void requests.push(request);
  const [first, second] = [await startLockApp({ backend }), await startLockApp({ backend })];
  await first.close();
  expect(requests.map(({ stopped }) => stopped?.aborted)).toEqual([true, false]);
  await second.close();
  expect(requests.map(({ stopped }) => stopped?.aborted)).toEqual([true, true]);
});
