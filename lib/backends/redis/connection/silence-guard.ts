// A connection that falls silent, or mixes up its replies, is replaced, for every client, and in every state: see
// docs/guide/redis.md.

import { onceRead } from '../../../timing/clock.js';
import { serverOf } from './connection-options.js';
import { isCluster, type RedisClient, type RedisNode, type RedisStream } from './redis-client.js';
import { wouldReconnect } from './ready-queue.js';
import type { ScriptRunner } from './script-runner.js';

/** How often (ms) the guard checks. It replaces a silent connection within twice this time. */
const PERIOD = 2_500;

/**
 * Closes a connection that receives nothing although commands wait for their replies, so that its client makes a new
 * one: only TCP would notice otherwise, after a quarter of an hour. It looks at each node of a Cluster by itself.
 *
 * ioredis' `socketTimeout` does the same, at the cost of a timer and a listener for every command.
 */
export class SilenceGuard {
  private readonly timer = setInterval(() => onceRead(() => this.check()), PERIOD).unref();
  /** The connections that waited at the last check. */
  private waited = new Map<RedisNode, Traffic>();

  constructor(private readonly scripts: Pick<ScriptRunner, 'client' | 'sent' | 'replies'>) {}

  close(): void {
    clearInterval(this.timer);
  }

  /** Closes every connection, so that the client makes new ones; `false` where that would close it for good. */
  replaceAll(why: Error): boolean {
    const { client } = this.scripts;
    if (!replaceable(client)) return false;
    for (const node of isCluster(client) ? client.nodes('all') : [client]) {
      (node.traffic ?? this.trafficOf(node))?.replace(why);
    }
    return true;
  }

  private check(): void {
    const { client } = this.scripts;
    const before = this.waited;
    this.waited = new Map();
    for (const node of isCluster(client) ? client.nodes('all') : [client]) {
      const traffic = node.traffic ?? this.trafficOf(node);
      if (!traffic?.waits) continue;
      const last = before.get(node);
      if (last?.stream !== traffic.stream || last?.received !== traffic.received) this.waited.set(node, traffic);
      else if (replaceable(client)) {
        traffic.replace(new Error(`The Redis server sent nothing for ${PERIOD} ms`));
      }
    }
  }

  /** Of a connection of ioredis. Its own commands count while it connects, and those of this library later. */
  private trafficOf(node: RedisNode): Traffic | undefined {
    const { status, stream } = node;
    if (!stream) return undefined;
    const { sent, replies } = this.scripts;
    const first = (Reflect.get(node, 'commandQueue') as CommandQueue | undefined)?.peekFront()?.command.name;
    const waits = first !== undefined && !BLOCKING.test(first) && (status !== 'ready' || sent > replies);
    return { stream, received: stream.bytesRead ?? replies, waits, replace: (why) => stream.destroy(why) };
  }
}

/** What has passed over a connection. */
export interface Traffic {
  readonly stream: RedisStream;
  /** Grows with what is received. */
  readonly received: number;
  /** Whether the server owes an answer. */
  readonly waits: boolean;
  replace(why: Error): void;
}

/** The commands of an ioredis connection without a reply. ioredis declares it as private. */
interface CommandQueue {
  peekFront(): { readonly command: { readonly name: string } } | undefined;
}

/** Commands of the application's that the server may answer late. */
const BLOCKING = /^(b[lrz]|xread|wait|monitor)/i;

/** A client whose retry strategy gives up would be closed for good; a Cluster looks after its nodes. */
function replaceable(client: RedisClient): boolean {
  return isCluster(client) || client.library !== undefined || wouldReconnect(client);
}

/** What to tell the operator about a client of which no connection can be replaced. */
export function adviceOn(client: RedisClient): string | undefined {
  if (client.library === undefined) {
    const hasTimeout = !isCluster(client) && (client.options.socketTimeout ?? 0) > 0;
    return replaceable(client) || hasTimeout ? undefined : `${serverOf(client)}: ${KEPT}; ${IOREDIS}`;
  }
  return client.keepsSilent ? `${serverOf(client)}: ${KEPT}; ${NODE_REDIS}` : undefined;
}

const KEPT = 'a connection that falls silent is kept until TCP gives it up, some 15 minutes later';
const IOREDIS = 'give its client a retryStrategy that reconnects, or socketTimeout: 5000';
const NODE_REDIS = 'make it with pingInterval: 2000 and socket: { socketTimeout: 5000 } in its "defaults"';
