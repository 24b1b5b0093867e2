import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockService, RedisLockModule } from 'nest-redis-lock';
import { LEASE, WAIT } from '../peers/connecting.mjs';

/** One instance of ours, wired as in an application. */
export async function connectLocks(port) {
  const app = await connectApplication(port);
  return app.get(LockService);
}

/** The same on another backend than a single Redis. */
async function connectBackend(backend) {
  const app = await application({ backend, cache: false });
  return app.get(LockService);
}

export async function connectApplication(port, options = {}, modules = []) {
  return application({ redis: { host: '127.0.0.1', port }, ...options }, modules);
}

function application(options, modules = []) {
  class Root {}
  const imports = [RedisLockModule.forRoot({ failFast: true, ...options }), ...modules];
  return NestFactory.createApplicationContext({ module: Root, imports }, { logger: false, abortOnError: false });
}

/** Ours on a backend: the lock service of an application. */
export async function ours(backend) {
  const locks = await connectBackend(backend);
  return (key, body) => locks.withLock(key, { ttl: LEASE, wait: WAIT }, ({ fencingToken }) => body(fencingToken));
}

export async function connectOurs({ port }) {
  const locks = await connectLocks(port);
  return (key, body) => locks.withLock(key, { ttl: LEASE, wait: WAIT }, body);
}
