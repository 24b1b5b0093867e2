// One process of load, for one job. It ends with its parent.
import { EventEmitter } from 'node:events';
import { firstLine } from '../figures.mjs';

// Peers add a listener to their client for every waiter.
EventEmitter.defaultMaxListeners = 0;

const JOBS = {
  backends: '../backends/job.mjs',
  cache: '../cache/job.mjs',
  contention: '../contention.mjs',
  events: '../events/job.mjs',
  list: '../list/job.mjs',
  memory: '../memory.mjs',
  names: '../names.mjs',
  readers: '../readers.mjs',
  renewal: '../renewal.mjs',
  semaphore: '../semaphore/job.mjs',
};

let run;

async function answer({ job, settings, request }) {
  if (job === undefined) return run(request);
  const { prepare } = await import(JOBS[job]);
  run = await prepare(settings);
  return undefined;
}

process.on('message', (question) => {
  answer(question).then(
    (result) => process.send({ result }),
    (error) => process.send({ error: firstLine(error) }),
  );
});
process.on('disconnect', () => process.exit());
