import type { RedisConnection } from '../../../options/redis-connection.js';
import { serverOf } from '../../redis/connection/server-address.js';
import { RedisLink } from '../../redis/redis-link.js';
import type { RedisScript } from '../../redis/scripting/redis-script.js';
import { RefusedForNow } from '../../redis/scripting/refused-for-now.js';
import { ScriptBatch } from '../../redis/scripting/script-batch.js';
import type { ScriptRunner } from '../../redis/scripting/script-runner.js';
import type { EncodedCall, ScriptArgument, ScriptCall } from '../../redis/scripting/encoded-call.js';
import { nodeOption } from '../redlock-options.js';
import { RELEASE } from '../scripts/release.lua.js';
import { RENEW } from '../scripts/renew.lua.js';
import type { RedlockScripts } from './redlock-scripts.js';
import { serverStart, startAfter, type ServerStart } from './server-start.js';
import { UnsettledTickets, type ReleaseKeys } from './unsettled-tickets.js';

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
    return this.scripts.client.status !== 'ready' && this.scripts.disconnects > 0;
  }

  /** Whether it has yet to free what the ticket may hold here, so that it must not be asked for the ticket. */
  isUnsettled(ticket: string): boolean {
    return this.unsettled.has(ticket);
  }

  acquire(encoded: EncodedCall, call: ScriptCall): void {
    this.acquires.runEncoded(encoded, call);
  }

  renew(encoded: EncodedCall, call: ScriptCall): void {
    this.renewals.runEncoded(encoded, call);
  }

  /** Frees the names of a ticket that is not asked for again. */
  release(encoded: EncodedCall, call: ScriptCall): void {
    this.releases.runEncoded(encoded, call);
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
    if (!this.absent && !this.silent) this.free(ticket, keys);
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
    this.freeAll();
  }

  /** How messages name it. */
  get server(): string {
    return serverOf(this.link.client);
  }

  /** Why it failed or is not asked: names the server, the cause and the remedy. */
  diagnose(error?: unknown): Error {
    return this.link.diagnose(error);
  }

  close(): void {
    this.closed = true;
    this.link.close();
  }

  private connected(): void {
    this.silent = false;
    void this.identify();
    this.freeAll();
  }

  private async identify(): Promise<void> {
    this.identified = false;
    this.trusted = false;
    const { disconnects } = this.scripts;
    let start: ServerStart | undefined;
    try {
      start = serverStart(await this.scripts.command((client) => client.info('server')));
    } catch (error) {
      if (!refusesInfo(error)) return this.identifyLater(disconnects);
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

  private freeAll(): void {
    for (const [ticket, keys] of this.unsettled.entries()) this.free(ticket, keys);
  }

  private free(ticket: string, keys: ReleaseKeys): void {
    this.releases.run(undefined, keys, [ticket, keys.length / 2], Number).then(
      () => this.unsettled.delete(ticket),
      // It stays to be freed at the next connection.
      () => {},
    );
  }
}

/** Whether the node answers by a refusal for good: its user may not run INFO. */
function refusesInfo(error: unknown): boolean {
  if (!(error instanceof Error) || error.name !== 'ReplyError') return false;
  return !RefusedForNow.is(error) && !error.message.startsWith('BUSY ');
}
