import { connectionForMessages } from '../messages/redis-subscriber.js';
import type { RedisNode } from '../redis-client.js';
import { PROBE } from './probe.lua.js';
import type { Rights } from './rights.js';

const REFUSED = /NOPERM|no permissions|user executing the script|ACL failure/;
const NO_WRITES = /READONLY|OOM|MISCONF|NOREPLICAS/;
/** A client of a Cluster follows these. */
const ELSEWHERE = /MOVED|CLUSTERDOWN/;

/**
 * Tries what a part of the library needs, and collects the rights that an ACL user lacks and other refusals of Redis.
 */
export class MissingRights {
  readonly commands = new Set<string>();
  readonly other = new Set<string>();
  keys = false;
  channels = false;

  constructor(
    private readonly node: RedisNode,
    private readonly rights: Rights,
    /** Whether the node belongs to a client of a Cluster. */
    private readonly inCluster: boolean,
  ) {}

  /** Whether nothing works without these rights. Without messages, waiters only get their lock later. */
  get vital(): boolean {
    return this.keys || [...this.commands].some((command) => command !== 'subscribe' && command !== 'publish');
  }

  get any(): boolean {
    return this.keys || this.channels || this.commands.size > 0;
  }

  /** The missing rights, in the syntax of ACL SETUSER. */
  get grants(): string {
    const { keyPatterns, messages } = this.rights;
    const commands = [...this.commands].map((command) => `+${command}`);
    const keys = this.keys ? keyPatterns.map((pattern) => `~${pattern}`) : [];
    const channels = this.channels && messages ? [`&${messages.channelPattern}`] : [];
    return [...commands, ...keys, ...channels].join(' ');
  }

  /** `keys` must lie in a slot of the node. */
  async look(keys: readonly string[]): Promise<void> {
    const { messages } = this.rights;
    await Promise.all([this.tryScripts(keys), messages && this.trySubscribing(messages.channel)]);
  }

  note(command: string, text: string): void {
    if (!REFUSED.test(text)) {
      if (NO_WRITES.test(text) || (!this.inCluster && ELSEWHERE.test(text))) this.other.add(text);
    } else if (/channel/.test(text)) this.channels = true;
    else if (/\bkeys?\b/.test(text)) this.keys = true;
    else this.commands.add(command.toLowerCase());
  }

  private async tryScripts(keys: readonly string[]): Promise<void> {
    const { probes, messages } = this.rights;
    const args = [JSON.stringify(probes), ...(messages ? [messages.channel] : [])];
    const byDigest = await this.tried('evalsha', () => this.node.evalsha(PROBE.sha1, keys.length, ...keys, ...args));
    const byText = await this.tried('eval', () => this.node.eval(PROBE.lua, keys.length, ...keys, ...args));
    const failed = (byDigest ?? byText ?? []) as readonly string[];
    for (let index = 0; index < failed.length; index += 2) this.note(failed[index] ?? '', failed[index + 1] ?? '');
  }

  /** Asks with ACL DRYRUN (Redis 7) if the user may; otherwise subscribes on a connection of its own. */
  private async trySubscribing(channel: string): Promise<void> {
    // ioredis stores null when no username is given.
    const username = this.node.options.username ?? 'default';
    try {
      const answer = String(await this.node.call('ACL', 'DRYRUN', username, 'SUBSCRIBE', channel));
      if (answer !== 'OK') this.note('subscribe', answer);
    } catch {
      const connection = connectionForMessages(this.node, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
      await this.tried('subscribe', async () => connection?.subscribe(channel));
      connection?.disconnect();
    }
  }

  private async tried<T>(command: string, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      if (error instanceof Error) this.note(command, error.message);
      return undefined;
    }
  }
}
