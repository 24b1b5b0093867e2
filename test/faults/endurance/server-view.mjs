import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

/** Queues and leases end by themselves within this time (ms) after the last caller. */
const PATIENCE = 30_000;

/** Looks into the server beside the library, and cuts its connections. */
export class ServerView {
  #client;

  constructor(port) {
    this.#client = new Redis({ host: '127.0.0.1', port, lazyConnect: true });
  }

  async ready() {
    await this.#client.connect();
  }

  async cutConnections() {
    await this.#client.client('KILL', 'TYPE', Math.random() < 0.5 ? 'normal' : 'pubsub', 'SKIPME', 'yes');
  }

  async memory() {
    const info = await this.#client.info('memory');
    return { used: Number(/^used_memory:(\d+)/m.exec(info)[1]), keys: await this.#client.dbsize() };
  }

  /** Keys other than fences, once they had the time to end. */
  async keysLeft() {
    const end = performance.now() + PATIENCE;
    for (;;) {
      const left = await this.#keys((key) => !key.endsWith(':fence'));
      if (left.length === 0 || performance.now() > end) return left;
      await sleep(1_000);
    }
  }

  async keysWithoutExpiry() {
    const keys = await this.#keys(() => true);
    const eternal = [];
    for (let first = 0; first < keys.length; first += 1_000) {
      const batch = keys.slice(first, first + 1_000);
      const pipeline = this.#client.pipeline();
      for (const key of batch) pipeline.pttl(key);
      const answers = await pipeline.exec();
      eternal.push(...batch.filter((_, index) => answers[index][1] === -1));
    }
    return eternal;
  }

  async #keys(wanted) {
    const found = [];
    for await (const keys of this.#client.scanStream({ count: 5_000 })) found.push(...keys.filter(wanted));
    return found;
  }

  close() {
    this.#client.disconnect();
  }
}
