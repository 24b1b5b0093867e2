// What the tests of the recipes share. They run where the tarball is installed, beside the compiled files of the pages.
import 'reflect-metadata';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { after } from 'node:test';
import { promisify } from 'node:util';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { RedisLockModule } from 'nest-redis-lock';
import pg from 'pg';

export const url = process.env.REDIS_URL;

/** A module with these parts, as the application of a page has it. */
export const moduleOf = (parts) => {
  const App = class {};
  Module(parts)(App);
  return App;
};

/** Makes an application, listening if `listen` is given, and closes it after the tests. */
export async function start(module, { listen = false, prepare, ...options } = {}) {
  const app = await NestFactory.create(module, { logger: ['warn', 'error', 'fatal'], ...options });
  after(() => app.close());
  prepare?.(app);
  if (listen) await app.listen(0, '127.0.0.1');
  else await app.init();
  return app;
}

/** With locks and a cache on the Redis of the run. */
export const startWith = ({ imports = [], options = {}, ...parts }, how) =>
  start(moduleOf({ imports: [RedisLockModule.forRoot({ redis: url, ...options }), ...imports], ...parts }), how);

/** A connection to that Redis. */
export function connect() {
  const client = new Redis(url);
  after(() => client.disconnect());
  return client;
}

// Each recipe begins with an empty Redis.
await connect().flushall();

/** A pool of connections to PostgreSQL, after this SQL. */
export async function database(sql) {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
  after(() => pool.end());
  if (sql) await pool.query(sql);
  return pool;
}

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

/** Resolves once the check answers something true. */
export async function eventually(check) {
  for (;;) {
    const found = await check();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Something that a test opens: `entered` resolves when somebody waits at it. */
export function gate() {
  let open;
  let enter;
  const opened = new Promise((resolve) => (open = resolve));
  const entered = new Promise((resolve) => (enter = resolve));
  return { open, entered, pass: () => (enter(), opened) };
}

export const outcomes = (results) => results.map(({ status, reason }) => reason?.message ?? status);

/** Runs the compiled tests of a folder in jest, and answers what it said. */
export async function runJest(folder, env = {}) {
  const jest = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', 'node_modules/jest/bin/jest.js'];
  const config = { rootDir: folder, testRegex: String.raw`\.spec\.js$`, transform: {} };
  const options = { env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...env } };
  const { stderr } = await promisify(execFile)(
    process.execPath,
    [...jest, '-w', '1', '--config', JSON.stringify(config)],
    options,
  );
  return stderr;
}
