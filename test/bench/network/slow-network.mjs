import { fork } from 'node:child_process';
import { once } from 'node:events';

const PATIENCE = 60_000;

/** The proxy between clients and the server at `target`, which runs in a process of its own. */
export class SlowNetwork {
  #proxy;

  constructor(proxy, port) {
    this.#proxy = proxy;
    this.port = port;
  }

  /** Each direction takes `delay` ms. */
  static async start(target, delay) {
    const proxy = fork(new URL('proxy.mjs', import.meta.url), [target, delay].map(String));
    const [{ port }] = await once(proxy, 'message', { signal: AbortSignal.timeout(PATIENCE) });
    return new SlowNetwork(proxy, port);
  }

  /**
   * What clients have sent since the start, once nothing is on its way any more: `writes`, of which each may be several
   * commands at once, and `commands`.
   */
  async settled() {
    const answered = once(this.#proxy, 'message', { signal: AbortSignal.timeout(PATIENCE) });
    this.#proxy.send('settled');
    const [counts] = await answered;
    return counts;
  }

  stop() {
    this.#proxy.disconnect();
  }
}
