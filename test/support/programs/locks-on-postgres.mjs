// Takes a lock on PostgreSQL, waits in vain for it, and ends. Its arguments: the URL and the kind of the locks.
import 'reflect-metadata';
import { postgres } from 'nest-redis-lock/postgres';
import { testServices } from 'nest-redis-lock/testing';
import { say } from './lock-app.mjs';

const [url, kind] = process.argv.slice(2);
const [one, two] = [1, 2].map(() => testServices({ backend: postgres(url, { kind }), cache: false }));
const lock = await one.locks.acquire('job');
await two.locks.acquire('job', { wait: 300 }).catch(({ code }) => say('refused', code));
await lock.release();
say('released');
await Promise.all([one.close(), two.close()]);
say('closed');
