// A Nest application that tells its parent when it serves, and what processor time (ms) it took until then. Nest and
// the library are those of the checkout that its first argument names; its second one names the backend of the locks.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [checkout, backend, redisUrl] = process.argv.slice(2);
const require = createRequire(`${checkout}/package.json`);
const importOf = (name) => import(pathToFileURL(require.resolve(name)).href);

await importOf('reflect-metadata');
const { Controller, Get, Module } = await importOf('@nestjs/common');
const { NestFactory } = await importOf('@nestjs/core');

class Status {
  status() {
    return 'fine';
  }
}
Controller()(Status);
Get()(Status.prototype, 'status', Object.getOwnPropertyDescriptor(Status.prototype, 'status'));

class Root {}
Module({ controllers: [Status], imports: backend === 'none' ? [] : [await locks()] })(Root);
const app = await NestFactory.create(Root, { logger: false, abortOnError: false });
await app.listen(0, '127.0.0.1');
const { user, system } = process.cpuUsage();
process.send((user + system) / 1_000);

async function locks() {
  const { memory, RedisLockModule } = await import(pathToFileURL(`${checkout}/dist/index.js`).href);
  return RedisLockModule.forRoot(backend === 'memory' ? { backend: memory() } : { redis: redisUrl });
}
