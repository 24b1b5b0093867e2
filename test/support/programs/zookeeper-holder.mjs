// Holds the lock `name` on ZooKeeper, in a session of one second, until it stood still for longer than that; then says
// what it reads first. Its arguments: the servers and the name.
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockService, RedisLockModule } from 'nest-redis-lock';
import { zookeeper } from 'nest-redis-lock/zookeeper';
import { say } from './lock-app.mjs';

const [, , servers, name] = process.argv;
class Root {}
const backend = zookeeper({ servers, sessionTimeout: 1_000 });
const module = { module: Root, imports: [RedisLockModule.forRoot({ backend })] };
const app = await NestFactory.createApplicationContext(module, { logger: false });
const lock = await app.get(LockService).acquire(name);
let last = performance.now();
say('held', { fencingToken: lock.fencingToken });
await new Promise((resolve) => {
  const timer = setInterval(() => {
    const pause = performance.now() - last;
    last = performance.now();
    if (pause < 1_000) return;
    clearInterval(timer);
    say('woken', { held: lock.held, aborted: lock.signal.aborted, fencingToken: lock.fencingToken });
    resolve();
  }, 5);
});
await app.close();
say('closed');
