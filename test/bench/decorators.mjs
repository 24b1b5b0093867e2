// What decorators cost: the start of an application with 200 decorated methods, and one call, with the memory backend.
// Each figure stands beside the same without decorators, from one run.
import 'reflect-metadata';
import { createRequire } from 'node:module';
import { Inject, Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import Table from 'cli-table3';
import { DistributedLock, LockService, memory, RedisLockModule } from 'nest-redis-lock';
import { Bench } from 'tinybench';

const CLASSES = 20;
const METHODS = 10;
const { version } = createRequire(import.meta.url)('@nestjs/core/package.json');

/** As a compiler with `emitDecoratorMetadata` does it. */
function decorate(type, name, decorator) {
  Reflect.defineMetadata('design:returntype', Promise, type.prototype, name);
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, name);
  decorator(type.prototype, name, descriptor);
  Object.defineProperty(type.prototype, name, descriptor);
}

function serviceClass(decorated) {
  class Service {}
  for (let number = 0; number < METHODS; number++) {
    const name = `method${number}`;
    Object.defineProperty(Service.prototype, name, {
      value: async (id) => id,
      writable: true,
      configurable: true,
    });
    if (decorated) decorate(Service, name, DistributedLock(`service:${name}:<0>`));
  }
  Injectable()(Service);
  return Service;
}

function rootModule(decorated, withLocks) {
  class Root {}
  const providers = Array.from({ length: CLASSES }, () => serviceClass(decorated));
  const imports = withLocks ? [RedisLockModule.forRoot({ backend: memory() })] : [];
  Module({ imports, providers })(Root);
  return Root;
}

async function start(module) {
  const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
  await app.close();
}

class Calls {
  locks;

  async plain(id) {
    return id;
  }

  async decorated(id) {
    return id;
  }

  async withLock(id) {
    return this.locks.withLock(`call:${id}`, async () => id);
  }

  async around() {
    for (let inner = 0; inner < 100; inner++) await this.reentered('1');
  }

  async reentered(id) {
    return id;
  }
}
Inject(LockService)(Calls.prototype, 'locks');
decorate(Calls, 'decorated', DistributedLock('call:<0>'));
decorate(Calls, 'around', DistributedLock('reentered:1'));
decorate(Calls, 'reentered', DistributedLock('reentered:<0>'));
Injectable()(Calls);

class CallsModule {}
Module({ imports: [RedisLockModule.forRoot({ backend: memory() })], providers: [Calls] })(CallsModule);

async function measure(title, baseline, tasks, options) {
  const bench = new Bench({ warmupIterations: 20, ...options });
  for (const [name, run] of Object.entries(tasks)) bench.add(name, run);
  await bench.run();
  const median = (name) => {
    const { result } = bench.getTask(name);
    if (result.state !== 'completed') throw new Error(`${name}: ${result.state}`, { cause: result.error });
    return result.latency.p50;
  };
  const table = new Table({
    head: [title, 'median µs', `× ${baseline}`],
    colAligns: ['left', 'right', 'right'],
    style: { head: [], border: [] },
  });
  for (const name of Object.keys(tasks)) {
    table.push([name, (median(name) * 1_000).toFixed(2), (median(name) / median(baseline)).toFixed(2)]);
  }
  console.log(table.toString());
}

console.log(`Node.js ${process.version}, Nest ${version}`);

const plainModule = rootModule(false, false);
const moduleAlone = rootModule(false, true);
const decoratedModule = rootModule(true, true);
await measure(
  `start and stop of an application with ${CLASSES} classes of ${METHODS} methods`,
  'no locks',
  {
    'no locks': () => start(plainModule),
    'RedisLockModule, nothing decorated': () => start(moduleAlone),
    [`RedisLockModule, ${CLASSES * METHODS} methods decorated`]: () => start(decoratedModule),
    // Once in the life of a process: the import of the files with the classes.
    [`decoration of ${CLASSES * METHODS} methods`]: () => rootModule(true, true),
  },
  { time: 2_000 },
);

const app = await NestFactory.createApplicationContext(CallsModule, { logger: false });
const calls = app.get(Calls);
await measure(
  'one call of a method, memory backend',
  'plain',
  {
    plain: () => calls.plain('1'),
    'LockService.withLock': () => calls.withLock('1'),
    '@DistributedLock': () => calls.decorated('1'),
  },
  { time: 2_000 },
);
await measure(
  'a hundred calls within the lock',
  'plain × 100',
  {
    'plain × 100': async () => {
      for (let inner = 0; inner < 100; inner++) await calls.plain('1');
    },
    '@DistributedLock, re-entered × 100': () => calls.around(),
  },
  { time: 1_000 },
);
await app.close();
