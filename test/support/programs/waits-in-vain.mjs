// Waits for a lock and a permit that another application of the same process has; nothing else keeps the process alive.
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
say('ended');
