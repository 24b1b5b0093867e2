import { Redis } from 'ioredis';

/** What this connection and the peers' clients send on their own account. */
const NOT_COUNTED = /^(?:info|config\|resetstat|flushall|ping|hello|client\|set(?:info|name))$/;
const SCRIPT_CALLS = /^(?:eval|evalsha|fcall)$/;

/** Looks into the server that the peers use: what it was asked, and what that cost it. */
export class RedisControl {
  #client;
  #cpuAtReset = 0;

  constructor(port) {
    // On Ctrl-C the server ends as well: what is asked then must fail, not wait for its return.
    this.#client = new Redis({ host: '127.0.0.1', port, retryStrategy: null });
    this.#client.on('error', () => {});
  }

  /** Forgets all keys and scripts: every round begins alike. */
  async empty() {
    await this.#client.flushall();
    await this.#client.script('FLUSH');
  }

  async reset() {
    await this.#client.config('RESETSTAT');
    this.#cpuAtReset = await this.#cpu();
  }

  /** Since the reset: commands, with those inside scripts; calls of scripts; µs of processor time. */
  async statistics() {
    const calls = [...(await this.#client.info('commandstats')).matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)];
    const sum = (wanted) => calls.reduce((total, [, name, count]) => total + (wanted(name) ? Number(count) : 0), 0);
    return {
      commands: sum((name) => !NOT_COUNTED.test(name)),
      scriptCalls: sum((name) => SCRIPT_CALLS.test(name)),
      cpu: (await this.#cpu()) - this.#cpuAtReset,
    };
  }

  /** How many keys that match have the text in what they hold. */
  async countHolding(text, glob) {
    // It would hide the text.
    await this.#client.config('SET', 'rdbcompression', 'no');
    const keys = await this.#client.keys(glob);
    const held = await Promise.all(keys.map((key) => this.#client.dumpBuffer(key)));
    return held.filter((value) => value?.includes(text)).length;
  }

  async countSubscribers() {
    const clients = String(await this.#client.client('LIST', 'TYPE', 'pubsub'));
    return clients.split('\n').filter((line) => line !== '').length;
  }

  async cutSubscribers() {
    await this.#client.client('KILL', 'TYPE', 'pubsub');
  }

  /** Stores many small values, whose keys are the prefix and a number. */
  async populate(prefix, count) {
    const batch = 10_000;
    for (let first = 0; first < count; first += batch) {
      const numbers = Array.from({ length: Math.min(batch, count - first) }, (_, index) => first + index);
      await this.#client.mset(numbers.flatMap((number) => [`${prefix}${number}`, 'x']));
    }
  }

  async version() {
    const info = await this.#client.info('server');
    // Valkey names the version of Redis that it is compatible with as well.
    const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1];
    return valkey === undefined ? `Redis ${/^redis_version:(\S+)/m.exec(info)?.[1]}` : `Valkey ${valkey}`;
  }

  close() {
    this.#client.disconnect();
  }

  async #cpu() {
    const seconds = [...(await this.#client.info('cpu')).matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)];
    return seconds.reduce((total, [, value]) => total + Number(value) * 1e6, 0);
  }
}
