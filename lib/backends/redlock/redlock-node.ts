import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisConnection } from '../../options/redis-connection.js';
import { serverOf } from '../redis/connection/connection-options.js';
import { RedisLink } from '../redis/connection/redis-link.js';
import { integerOf, type RedisScript } from '../redis/connection/redis-script.js';
import {
  type ScriptArgument,
  type ScriptCall,
  type ScriptRequest,
  ScriptBatch,
} from '../redis/connection/script-batch.js';
import { RefusedForNow } from '../redis/connection/ready-queue.js';
import type { ScriptRunner } from '../redis/connection/script-runner.js';
import { FENCE_TTL, withFenceTtl } from '../redis/locks/queue.lua.js';
import { ACQUIRE } from './acquire.lua.js';
import { RELEASE, RENEW, MINT } from './owner.lua.js';
import type { ReleaseKeys } from './redlock-keys.js';
import { nodeOption } from './redlock-options.js';

/** Milliseconds until a node is asked again, by PING or INFO, whose client gave the question up. */
const ASK_AGAIN = 500;

/** One of the independent Redis: its connection, whether it is worth asking now, and what it may have to free. */
export class RedlockNode {
  readonly link: RedisLink;
  readonly scripts: ScriptRunner;
  /** Settles when it was first asked which server it is: it has answered, or could not be reached. */
  readonly met: Promise<void>;
  /** Whether the server of the present connection has said which one it is, or refuses to. */
  identified = false;
  start: ServerStart | undefined;
  /** Whether it was seen to restart. */
  restarted = false;
  /** Whether it is known to run for long enough to grant. */
  trusted = false;
  /** Whether it gave no answer in time, and none since. */
  silent = false;
  /** Whether it goes on refusing requests, whatever their keys, as far as its last answer says. */
  refuses = false;
  private closed = false;
  private readonly unsettled = new UnsettledTickets();
  private readonly acquires: ScriptBatch;
  private readonly releases: ScriptBatch;
  private readonly renewals: ScriptBatch;

  constructor(
    connection: RedisConnection,
    readonly index: number,
    scripts: RedlockScripts,
  ) {
    // A node that refuses for now fails with its answer: the others decide without it.
    this.link = new RedisLink(connection, nodeOption(index), { persists: false });
    this.scripts = this.link.scripts;
    this.acquires = new ScriptBatch(this.scripts, scripts.acquire);
    this.releases = new ScriptBatch(this.scripts, RELEASE);
    this.renewals = new ScriptBatch(this.scripts, RENEW);
    this.scripts.whenConnected(() => this.connected());
    this.met = this.identify();
  }

  /** Whether its connection is lost. */
  get absent(): boolean {
    const { client, disconnects, usesSpare } = this.scripts;
    return client.status !== 'ready' && disconnects > 0 && !usesSpare;
  }

  /** Whether it has yet to free what the ticket may hold here, so that it must not be asked for the ticket. */
  isUnsettled(ticket: string): boolean {
    return this.unsettled.has(ticket);
  }

  acquire(request: ScriptRequest, call: ScriptCall): void {
    this.acquires.runRequest(request, call);
  }

  renew(request: ScriptRequest, call: ScriptCall): void {
    this.renewals.runRequest(request, call);
  }

  /** Frees the names of a ticket that is not asked for again. */
  release(request: ScriptRequest, call: ScriptCall): void {
    this.releases.runRequest(request, call);
  }

  /** Sends the acquires of this turn, before a release of one of them that nobody waits for any more. */
  sendAcquires(): void {
    this.acquires.sendGathered();
  }

  run(script: RedisScript, keys: readonly string[], args: readonly ScriptArgument[], call: ScriptCall): void {
    this.scripts.send(
      script,
      keys,
      args,
      (reply) => call.settle(reply),
      (error) => call.fail(error),
    );
  }

  /** The release of a ticket, which is not asked for again, was not sent here or failed. */
  owes(ticket: string, keys: ReleaseKeys): void {
    this.unsettled.addIfRoom(ticket, keys);
  }

  /** The node may grant the ticket, or may have, although the request was given up; its answer will tell. */
  doubt(ticket: string, keys: ReleaseKeys): void {
    this.unsettled.add(ticket, keys);
  }

  /** The answer says that the ticket holds nothing here. */
  settle(ticket: string): void {
    this.unsettled.delete(ticket);
  }

  /** Frees what the ticket may hold here, now or when the node answers again. */
  undo(ticket: string, keys: ReleaseKeys): void {
    this.unsettled.add(ticket, keys);
    if (!this.absent && !this.silent) void this.free(ticket, keys);
  }

  /** It gave no answer in time: it is asked no more, unless it is needed, until it answers a PING. */
  missed(): void {
    if (this.silent || this.closed) return;
    this.silent = true;
    this.probe();
  }

  /** It answered, in time or not. */
  answered(): void {
    if (!this.silent) return;
    this.silent = false;
    void this.freeAll();
  }

  /** How messages name it. */
  get server(): string {
    return serverOf(this.link.client);
  }

  /** Why it failed or is not asked: names the server, the cause and the remedy. */
  diagnose(error?: unknown): Error {
    return this.link.diagnose(error);
  }

  /** Frees what the tickets of this process may hold here, waits `limit` ms at most for that, and closes. */
  async close(limit: number): Promise<void> {
    this.closed = true;
    if (!this.absent) await Promise.race([this.giveBack(), sleep(limit, undefined, { ref: false })]);
    this.link.close();
  }

  private async giveBack(): Promise<void> {
    const freed = this.freeAll();
    // Its answer follows those to all earlier requests, which may tell of more to be freed.
    await this.scripts.command((client) => client.ping()).catch(() => {});
    await freed;
    await this.freeAll();
  }

  private connected(): void {
    this.silent = false;
    void this.identify();
    void this.freeAll();
  }

  private async identify(): Promise<void> {
    this.identified = false;
    this.trusted = false;
    const { disconnects } = this.scripts;
    let start: ServerStart | undefined;
    try {
      start = serverStart(await this.scripts.command((client) => client.info('server')));
    } catch (error) {
      if (!refusesInfo(error, this.link.client)) return this.identifyLater(disconnects);
    }
    if (this.scripts.disconnects !== disconnects) return;
    if (this.start && start && this.start.runId !== start.runId) this.restarted = true;
    if (start) this.start = startAfter(start, this.start, this.scripts.disconnectedAt);
    this.identified = true;
  }

  /** No answer yet; a connection that is lost since has asked again. */
  private identifyLater(disconnects: number): void {
    setTimeout(() => {
      if (!this.closed && this.scripts.disconnects === disconnects) void this.identify();
    }, ASK_AGAIN).unref();
  }

  private probe(): void {
    this.scripts
      .command((client) => client.ping())
      .then(
        () => this.answered(),
        () => setTimeout(() => this.silent && !this.closed && this.probe(), ASK_AGAIN).unref(),
      );
  }

  private async freeAll(): Promise<void> {
    await Promise.all(this.unsettled.all().map(({ ticket, keys }) => this.free(ticket, keys)));
  }

  private free(ticket: string, keys: ReleaseKeys): Promise<void> {
    return new Promise((resolve) => {
      this.releases.run(undefined, keys, [ticket], integerOf).then(
        () => {
          this.unsettled.delete(ticket, keys);
          resolve();
        },
        // It stays to be freed at the next connection.
        () => resolve(),
      );
    });
  }
}

/** The scripts that issue fencing tokens. */
export interface RedlockScripts {
  readonly acquire: RedisScript;
  readonly mint: RedisScript;
}

/** The scripts for counters that are kept for `fenceTtl` ms after the last grant. */
export function redlockScripts(fenceTtl: number): RedlockScripts {
  const of = (script: RedisScript) => (fenceTtl === FENCE_TTL ? script : withFenceTtl(script, fenceTtl));
  return { acquire: of(ACQUIRE), mint: of(MINT) };
}

/** Nodes that start within this time (ms) of the first one belong to a fresh installation, which has no locks yet. */
const FRESH_START = 10_000;

/**
 * Decides which nodes may grant: a node that has restarted without its data knows nothing of the locks whose leases
 * still run, and grants nothing until they have ended.
 *
 * A restart is seen by a change of the run id. A process that meets a node for the first time goes by its uptime: the
 * node has restarted if it started later than another one and not long ago.
 */
export class Restarts {
  constructor(
    private readonly nodes: readonly RedlockNode[],
    /** Milliseconds from the start of a node until it may grant; 0 where nodes keep their locks. */
    private delay: number,
  ) {}

  /** A lease of `ttl` ms is asked for: restarted nodes wait for at least as long. */
  note(ttl: number): void {
    if (this.delay === 0 || ttl <= this.delay) return;
    this.delay = ttl;
    for (const node of this.nodes) node.trusted = false;
  }

  mayGrant(node: RedlockNode): boolean {
    // Over the spare connection it only gives back: the server may have restarted since.
    if (node.scripts.usesSpare) return false;
    return node.trusted || (node.identified && this.reasonAgainst(node) === undefined);
  }

  /** Why the node may not grant, for messages. */
  reasonAgainst(node: RedlockNode): string | undefined {
    if (node.scripts.usesSpare) return 'has a client that the application has ended; give one that stays open';
    if (!node.identified) return 'is being asked when it started';
    const { start } = node;
    // Its user may not run INFO, so that restarts go unnoticed.
    if (!start) return undefined;
    for (const { index, start: other } of this.nodes) {
      if (index >= node.index) break;
      if (other?.runId !== start.runId) continue;
      return `is the same server as connections[${index}]; give one connection for each independent Redis`;
    }
    const left = start.startedAt + this.delay - performance.now();
    if (left <= 0) {
      node.trusted = true;
      return undefined;
    }
    if (!node.restarted && start.startedAt - this.firstStart() <= FRESH_START) return undefined;
    return `has restarted, and grants nothing for ${Math.ceil(left)} ms more, as locks of before may be missing there`;
  }

  private firstStart(): number {
    let first = Infinity;
    for (const { start } of this.nodes) if (start && start.startedAt < first) first = start.startedAt;
    return first;
  }
}

/** Which run of a server answers, and since when it runs. */
interface ServerStart {
  readonly runId: string;
  /** On our monotonic clock (ms). The server states whole seconds: this is the latest possible time. */
  readonly startedAt: number;
}

/**
 * What to go by when a server has said `now` when it started, and `before` on the last connection, which was lost at
 * `lostAt`. The server counts its uptime on its wall clock: a clock that was set forward shows a start too early.
 */
function startAfter(now: ServerStart, before: ServerStart | undefined, lostAt: number): ServerStart {
  if (before === undefined) return now;
  if (before.runId === now.runId) return before;
  return { runId: now.runId, startedAt: Math.max(now.startedAt, lostAt) };
}

/** Reads the answer to `INFO server`; `undefined` where it lacks the fields. */
function serverStart(info: string): ServerStart | undefined {
  const runId = /^run_id:(\w+)/m.exec(info)?.[1];
  const uptime = /^uptime_in_seconds:(\d+)/m.exec(info)?.[1];
  if (runId === undefined || uptime === undefined) return undefined;
  return { runId, startedAt: performance.now() - Number(uptime) * 1_000 };
}

/** Whether the node answers by a refusal for good: its user may not run INFO. */
function refusesInfo(error: unknown, client: RedisLink['client']): boolean {
  if (!(error instanceof Error) || error.name !== 'ReplyError') return false;
  return !RefusedForNow.is(error, client) && !error.message.startsWith('BUSY ');
}

const MOST_UNSETTLED = 10_000;

/**
 * The tickets that a node may hold although their locks were given up or released: the node is to free them. The oldest
 * leave when there are too many; their leases end them.
 */
class UnsettledTickets {
  /** By ticket: the keys of each name. */
  private readonly keysOf = new Map<string, readonly ReleaseKeys[]>();

  has(ticket: string): boolean {
    return this.keysOf.has(ticket);
  }

  /** A request for this ticket may come again: remembers it in any case. */
  add(ticket: string, keys: ReleaseKeys): void {
    this.keysOf.set(ticket, [...this.without(ticket, keys), keys]);
    if (this.keysOf.size <= MOST_UNSETTLED) return;
    for (const [oldest] of this.keysOf) {
      this.keysOf.delete(oldest);
      break;
    }
  }

  /** No request for this ticket comes again: remembers it while there is room. */
  addIfRoom(ticket: string, keys: ReleaseKeys): void {
    if (this.keysOf.size < MOST_UNSETTLED || this.has(ticket)) this.add(ticket, keys);
  }

  /** The name with these keys is free; without `keys`: the ticket holds nothing. */
  delete(ticket: string, keys?: ReleaseKeys): void {
    const left = keys ? this.without(ticket, keys) : [];
    if (left.length === 0) this.keysOf.delete(ticket);
    else this.keysOf.set(ticket, left);
  }

  all(): readonly { readonly ticket: string; readonly keys: ReleaseKeys }[] {
    return [...this.keysOf].flatMap(([ticket, names]) => names.map((keys) => ({ ticket, keys })));
  }

  private without(ticket: string, [lock]: ReleaseKeys): readonly ReleaseKeys[] {
    return (this.keysOf.get(ticket) ?? []).filter(([other]) => other !== lock);
  }
}
