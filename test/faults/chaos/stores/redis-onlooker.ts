import type { Redis } from 'ioredis';

/** Looks at the keys of one or several Redis servers. */
export class RedisOnlooker {
  constructor(private readonly clients: readonly Redis[]) {}

  /** The keys of locks and queues. Fences, labels and notes of versions stay until they expire. */
  async leftovers(): Promise<readonly string[]> {
    return (await this.keys()).map(({ key }) => key).filter((key) => !/(:fence|:label|versions)$/.test(key));
  }

  /** The keys that never expire. */
  async endless(): Promise<readonly string[]> {
    const keys = await this.keys();
    const expiries = await Promise.all(keys.map(({ client, key }) => client.pttl(key)));
    return keys.filter((_, index) => expiries[index] === -1).map(({ key }) => key);
  }

  private async keys(): Promise<readonly { client: Redis; key: string }[]> {
    const ofEach = this.clients.map(async (client) => (await client.keys('*')).map((key) => ({ client, key })));
    return (await Promise.all(ofEach)).flat();
  }
}
