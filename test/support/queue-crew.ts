import { Redis } from 'ioredis';
import type { LockOptions } from 'nest-redis-lock';
import { Child } from './child.js';
import { eventually } from './eventually.js';

export interface Contest {
  name: string | string[];
  as: string;
  options?: LockOptions;
}

/** Processes that wait for locks on our orders, and what they report in database 1. */
export class QueueCrew {
  private readonly children = new Map<string, Child>();
  private readonly evidence: Redis;

  /** The locks are on the Redis at the port, or on the Cluster whose nodes are at `clusterPorts`. */
  constructor(
    private readonly port: number,
    private readonly clusterPorts: readonly number[] = [],
  ) {
    this.evidence = new Redis({ host: '127.0.0.1', port, db: 1 });
  }

  async hire(...ids: string[]): Promise<void> {
    for (const id of ids) {
      const args = [String(this.port), id, ...this.clusterPorts.map(String)];
      this.children.set(id, Child.start('queue-crew.mjs', args));
    }
    await Promise.all(ids.map((id) => this.member(id).says('ready')));
  }

  member(id: string): Child {
    const child = this.children.get(id);
    if (!child) throw new Error(`Nobody is called ${id}`);
    return child;
  }

  /** One hold by `id`, reported as `as`, for the given ms or until the process dies. */
  async take(id: string, name: string, as: string, more: { options?: LockOptions; hold?: number | 'forever' } = {}) {
    await this.order(id, { take: { name, as, ...more } });
  }

  /** Lets each of these callers of member `id` take its lock again and again, until `stop`. */
  async contend(id: string, contests: Contest[]): Promise<void> {
    await this.order(id, { contend: contests });
  }

  /** Waits until each of `callers` callers was served `times` times. */
  async allServed(callers: number, times: number, within = 90_000): Promise<void> {
    const served = async () => {
      const counts = Object.values(await this.served());
      return counts.length === callers && Math.min(...counts) >= times;
    };
    await eventually(served, { within, every: 50 });
  }

  /** Ends what these members began with `contend`. */
  async stop(...ids: string[]): Promise<void> {
    for (const id of ids) await this.order(id, { stop: true });
    await eventually(async () => (await this.evidence.llen('ended')) === ids.length, { within: 90_000 });
    await this.evidence.del('ended');
  }

  /** Who was granted the name, in the order of the grants. */
  grants(name: string): Promise<string[]> {
    return this.evidence.lrange(`grants:${name}`, 0, -1);
  }

  /** How often each was served. */
  async served(): Promise<Record<string, number>> {
    const served = await this.evidence.hgetall('served');
    return Object.fromEntries(Object.entries(served).map(([as, count]) => [as, Number(count)]));
  }

  async tokens(name: string): Promise<number[]> {
    return (await this.evidence.lrange(`tokens:${name}`, 0, -1)).map(Number);
  }

  /** What went wrong since the last call. */
  async findings(): Promise<string[]> {
    const findings = await this.evidence.lrange('findings', 0, -1);
    await this.evidence.del('findings', 'served');
    return findings;
  }

  /** How often the machine has kept a member from running, since the last call. */
  async standstills(): Promise<number> {
    return Number(await this.evidence.getdel('standstills'));
  }

  async dismiss(): Promise<void> {
    await Promise.all([...this.children.values()].map((child) => child.kill()));
    this.evidence.disconnect();
  }

  private async order(id: string, order: object): Promise<void> {
    await this.evidence.rpush(`orders:${id}`, JSON.stringify(order));
  }
}
