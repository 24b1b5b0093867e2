// Ends while a loader never settles, and nothing else keeps the process alive.
import 'reflect-metadata';
import { memory } from 'nest-redis-lock';
import { testServices } from 'nest-redis-lock/testing';
import { say } from './lock-app.mjs';

const { cache, close } = testServices({ backend: memory() });
const loading = new Promise((resolve) => {
  cache.getOrSet('key', () => new Promise(() => resolve()), { ttl: '1m', loaderTimeout: '1d' }).catch(() => {});
});
await loading;
await close();
say('closed');
