// Waits for what only timers of the library settle: a lock and a permit that another application of the same process
// has, a latch, a loader, and the end of a hold. Nothing else keeps the process alive.
import 'reflect-metadata';
import { memory } from 'nest-redis-lock';
import { testServices } from 'nest-redis-lock/testing';
import { say } from './lock-app.mjs';

const backend = memory();
const [one, two] = [testServices({ backend }), testServices({ backend })];
await one.locks.acquire('job');
await two.locks.acquire('job', { wait: 300 }).catch(({ code }) => say('refused', code));
await two.locks.acquire(['job', 'other'], { wait: 300 }).catch(({ code }) => say('also', code));
const limits = { permits: 1, wait: 300 };
await one.semaphores.acquire('job', limits);
await two.semaphores.acquire('job', limits).catch(({ code }) => say('permit', code));

await one.latches.define('job', { count: 2, ttl: '1m' });
await one.latches.await('job', { wait: 300 }).catch(({ code }) => say('latch', code));
const never = () => new Promise(() => {});
await one.cache.getOrSet('job', never, { ttl: '1m', loaderTimeout: 300 }).catch(({ code }) => say('loader', code));

const aborted = ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve));
const lost = (name) => (error) => say(name, error.code);
await one.locks.withLock('lease', { ttl: 300, renew: false }, aborted).catch(lost('lease'));
await one.locks.withLock('longest', { maxHold: 300 }, aborted).catch(lost('longest'));
await one.locks.withLock(['a', 'b'], { maxHold: 300 }, aborted).catch(lost('several'));
await one.jobs.run('job', { atMostFor: 300, atLeastFor: 0 }, aborted).catch(lost('run'));
say('ended');
