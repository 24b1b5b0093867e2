// The other process of the cases for lock backends: `answers-cases.mjs <backend> <port> ...`.
import { memory, redis } from 'nest-redis-lock';
import { testServices } from 'nest-redis-lock/testing';
import { optionsFor } from './contending-stores.mjs';

const [, , kind, ...args] = process.argv;
const ports = args.map(Number);
const own = {
  memory: () => memory(),
  redis: () => redis({ host: '127.0.0.1', port: ports[0] }),
  'redis-written-later': () => writingLater(redis({ host: '127.0.0.1', port: ports[0] })),
};
const backend = own[kind]?.() ?? (await optionsFor(kind, ports)).backend;
testServices({ backend, cache: false, commandTimeout: 5_000 }).answerCases();

/** Sends a renewal in the next turn of the event loop, although the backend says that it writes at once. */
function writingLater(inner) {
  const open = (module) => {
    const store = inner.open(module);
    const renew = (requests) =>
      requests.map(async (request) => {
        await new Promise(setImmediate);
        return store.renew([request])[0];
      });
    return Object.assign(Object.create(store), { renew });
  };
  return Object.assign(Object.create(inner), { open });
}
