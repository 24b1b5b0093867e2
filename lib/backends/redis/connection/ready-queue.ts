// What happens while a client has no connection (`ReadyQueue`), has one that leads to a replica (`PrimarySeeker`), or
// one whose server refuses a command for now (`RefusedForNow`, `scriptClient`).

import type { EventEmitter } from 'node:events';
import type { Cluster, Redis } from 'ioredis';
import type { Notice } from '../../../contracts/store.js';
import { serverOf } from './connection-options.js';
import { isCluster, type RedisClient, type RedisNode } from './redis-client.js';
import type { ScriptRunner } from './script-runner.js';

/**
 * Holds calls until the connection is ready. The offline queue of a client that retries for long would keep every call
 * until Redis is back, and send it when nobody waits for the answer any more. Here calls wait until `patience` ms after
 * the first of them; later ones fail at once.
 */
export class ReadyQueue {
  /** How long (ms) calls wait for the connection at most. */
  patience = 1_000;
  private waiting: WaitingCall[] = [];
  private timer: NodeJS.Timeout | undefined = undefined;
  private over = false;
  private hadConnection: boolean;
  private readonly onReady = () => {
    this.hadConnection = true;
    this.over = false;
    for (const { send } of this.taken()) send();
  };
  private readonly onEnd = () => this.failAll();

  constructor(
    private readonly client: Pick<RedisClient, 'status'> & EventEmitter,
    private readonly whyNot: () => Error,
    /** Whether calls wait for the first connection only: later ones leave it to the client. */
    private readonly onlyFirst = false,
  ) {
    this.hadConnection = onlyFirst && client.status === 'ready';
    client.on('ready', this.onReady);
    client.on('end', this.onEnd);
  }

  /**
   * Takes a call that finds the client not ready, to send or fail it later. Returns `false` when the call does not have
   * to wait here.
   */
  take(send: () => void, failed: (error: unknown) => void): boolean {
    if (!ON_THE_WAY.has(this.client.status) || (this.onlyFirst && this.hadConnection)) return false;
    // The caller attaches its listeners after this function returns.
    if (this.over) queueMicrotask(() => failed(this.whyNot()));
    else {
      this.waiting.push({ send, failed });
      this.timer ??= setTimeout(() => {
        this.over = true;
        this.failAll();
      }, this.patience).unref();
    }
    return true;
  }

  close(): void {
    this.client.off('ready', this.onReady);
    this.client.off('end', this.onEnd);
    this.failAll();
  }

  private failAll(): void {
    const waiting = this.taken();
    if (waiting.length === 0) return;
    const error = this.whyNot();
    for (const { failed } of waiting) failed(error);
  }

  private taken(): readonly WaitingCall[] {
    const { waiting } = this;
    this.waiting = [];
    clearTimeout(this.timer);
    this.timer = undefined;
    return waiting;
  }
}

interface WaitingCall {
  readonly send: () => void;
  readonly failed: (error: unknown) => void;
}

const ON_THE_WAY = new Set(['connecting', 'connect', 'close', 'reconnecting', 'disconnecting']);

/** Whether the client refuses a command at once while it has no connection, also before its first one. */
export function refusesUnconnected({ options }: RedisClient): boolean {
  return options.enableOfflineQueue === false;
}

/** Whether the client's own queue holds a command for longer than until the next failed connection attempt. */
export function queuesForLong(client: RedisClient): boolean {
  if (isCluster(client)) return client.options.enableOfflineQueue !== false;
  const { enableOfflineQueue, maxRetriesPerRequest } = client.options;
  return enableOfflineQueue !== false && (maxRetriesPerRequest == null || maxRetriesPerRequest > 1);
}

/**
 * Milliseconds before the next reconnect when the connection still leads to a replica. Doubles each time.
 */
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8_000;
/** A read-only reply later than this (ms) after the previous one begins a new episode. */
const QUIET = 60_000;

/**
 * Reconnects when Redis answers that it has become a replica. The connection to the old primary stays open after a
 * failover, although its host name may lead to the new primary.
 */
export class PrimarySeeker {
  private pause = 0;
  private lastTry = -Infinity;
  private lastReply = -Infinity;

  constructor(
    private readonly client: RedisClient,
    private readonly report: (notice: Notice) => void,
  ) {}

  /** Called for each error that Redis answers. */
  answered(error: Error): void {
    // A node of a Cluster answers MOVED, which the client follows.
    const { client } = this;
    if (isCluster(client) || !error.message.includes('READONLY')) return;
    const now = performance.now();
    const reconnects = wouldReconnect(client);
    if (now - this.lastReply > QUIET) {
      this.pause = 0;
      this.warn(reconnects);
    }
    this.lastReply = now;
    if (!reconnects || client.status !== 'ready' || now - this.lastTry < this.pause) return;
    this.lastTry = now;
    this.pause = Math.min(Math.max(2 * this.pause, FIRST_PAUSE), LONGEST_PAUSE);
    client.disconnect(true);
  }

  private warn(reconnects: boolean): void {
    const remedy = reconnects
      ? 'reconnecting until the connection leads to the primary'
      : 'the retryStrategy of its client does not reconnect: connect it to the primary';
    this.report({ level: 'warn', message: `${serverOf(this.client)} is read-only, as a replica is: ${remedy}` });
  }
}

/** Reconnecting would close a client for good if its retry strategy refuses. */
export function wouldReconnect({ options }: RedisNode): boolean {
  return typeof options.retryStrategy === 'function' && typeof options.retryStrategy(1) === 'number';
}

/** Repeats a command while the server refuses it for now. */
export class RefusedForNow {
  /** What the server answered last. */
  last: Error | undefined = undefined;
  private until = 0;

  constructor(
    private readonly scripts: Pick<ScriptRunner, 'client' | 'repeated'>,
    private readonly send: (failed: (error: unknown) => void) => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  /** A node of a Cluster refuses for good, with MOVED and ASK, where its client does not follow these. */
  static is(error: unknown, client: Pick<RedisClient, 'isCluster'>): boolean {
    if (!(error instanceof Error)) return false;
    if (client.isCluster && NOT_LOCAL.test(error.message)) return true;
    return FOR_NOW.test(error.message) && (client.isCluster || !ELSEWHERE.test(error.message));
  }

  readonly again = (error: unknown): void => {
    const now = performance.now();
    this.until ||= now + LONGEST;
    const { repeated, client } = this.scripts;
    if (now >= this.until || !RefusedForNow.is(error, client)) return this.failed(error);
    this.last = error as Error;
    repeated.add(this);
    setTimeout(() => {
      repeated.delete(this);
      this.send(this.again);
    }, PAUSE).unref();
  };
}

/**
 * What a server answers to a command that it can carry out soon: it is still loading its data, or a slot of a Cluster
 * is being migrated or has no master. A Cluster client repeats such commands a few times itself and then fails with the
 * last answer.
 */
const FOR_NOW =
  /^(Too many Cluster redirections\. Last error: \w+: )?(TRYAGAIN|ASK|MOVED|CLUSTERDOWN|MASTERDOWN|LOADING) /;
const ELSEWHERE = /^(ASK|MOVED) /;
/**
 * What a script gets that has emptied a key of a slot on its way, and looks at it again: the source then takes the key
 * for one that the target has. Each script may be repeated.
 */
export const NOT_LOCAL = /^ERR .*\bscript attempted to access a non local key\b/i;
/** Milliseconds between two sends. */
const PAUSE = 50;
/** How long (ms) a command is repeated: the default of `commandTimeout`. */
const LONGEST = 1_000;

/**
 * Whether a node refused a script because some of its keys are at the other node of a slot that is being migrated; or
 * ended it where it came to a key that it had emptied itself.
 */
export function isTryAgain({ message }: Error): boolean {
  return message.startsWith('TRYAGAIN ') || NOT_LOCAL.test(message);
}

type SendCommand = Cluster['sendCommand'];

/**
 * The client, for scripts. That of ioredis differs from the given one:
 *
 * - `enableAutoPipelining` is off. With it, ioredis 5 sends the scripts of one turn of the event loop to a Cluster as
 *   one pipeline, although their keys may lie in different slots: it takes the digest of a script for its key.
 * - On a Cluster, TRYAGAIN rejects at once. ioredis would repeat the command for seconds, as long as the slot is being
 *   migrated.
 */
export function scriptClient(client: RedisClient): RedisClient {
  if (client.library !== undefined) return client;
  const options = { value: { ...client.options, enableAutoPipelining: false } };
  if (!client.isCluster) {
    // On the client itself, which keeps its state there.
    const send = (...command: Parameters<Redis['sendCommand']>) => (client as Redis).sendCommand(...command);
    return Object.create(client, { options, sendCommand: { value: send } }) as RedisClient;
  }
  const cluster = client as Cluster;
  const sendCommand: SendCommand = (command, ...where) => {
    const { reject } = command;
    const sent = cluster.sendCommand(command, ...where);
    const redirect = command.reject;
    command.reject = (error) => (isTryAgain(error) ? reject : redirect).call(command, error);
    return sent;
  };
  return Object.create(cluster, {
    options,
    sendCommand: { value: sendCommand },
  }) as Cluster;
}
