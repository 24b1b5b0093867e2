import { setTimeout as sleep } from 'node:timers/promises';
import { WorkerProcess } from '../worker/worker-process.mjs';

const PATIENCE = 60_000;
/** Until what a killed process had open is closed on the server. */
const CLOSING = 100;

/** A process with one cache. */
export class CacheProcess {
  #worker;

  constructor(worker) {
    this.#worker = worker;
  }

  static async open(peer, { port, directory }, execArgv) {
    const worker = new WorkerProcess(execArgv);
    try {
      await worker.prepare('cache', { peer, port, directory }, PATIENCE);
    } catch (error) {
      await worker.end();
      throw error;
    }
    return new CacheProcess(worker);
  }

  call(operation, settings = {}, patience = PATIENCE) {
    return this.#worker.run(patience, { operation, settings });
  }

  async end() {
    await this.#worker.end();
  }
}

/**
 * Gives `work` what opens processes with a cache of this peer, and ends them after it. Answers its figures, and how
 * many errors nobody had caught in these processes.
 */
export async function withCaches(peer, context, work) {
  const caches = [];
  const open = async (execArgv) => {
    const cache = await CacheProcess.open(peer, context, execArgv);
    caches.push(cache);
    return cache;
  };
  try {
    const figures = await work(open);
    const uncaught = (await Promise.all(caches.map((cache) => cache.call('uncaught')))).flat();
    return { ...figures, uncaught: uncaught.length, firstError: figures.firstError ?? uncaught[0] };
  } finally {
    await Promise.all(caches.map((cache) => cache.end()));
    await sleep(CLOSING);
  }
}
