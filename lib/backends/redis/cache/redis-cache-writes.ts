import { hash } from 'node:crypto';
import type { SetRequest } from '../../../contracts/cache-store.js';
import type { Pending } from '../../../contracts/store.js';
import { BatchedCall } from '../../batch.js';
import type { ReadBatch } from '../connection/read-batch.js';
import { mastersOf } from '../connection/redis-client.js';
import { ScriptBatch } from '../connection/script-batch.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';
import { SET } from './values.lua.js';

/**
 * Stores a value before its deadline or not at all, because a command that the network delivers late could undo an
 * invalidation confirmed meanwhile. The server compares its clock with a deadline in the request. That takes one round
 * trip; a lease for each value would take two.
 */
export class RedisCacheWrites {
  readonly clock: ServerClock;
  private readonly batch: ScriptBatch;

  constructor(
    scripts: ScriptRunner,
    private readonly keys: RedisCacheKeys,
    private readonly reads: ReadBatch,
  ) {
    this.batch = new ScriptBatch(scripts, SET);
    this.clock = new ServerClock(scripts);
  }

  set(request: SetRequest): Pending<SetAnswer> {
    const call = new BatchedCall<SetAnswer>();
    new SetCall(this, request).send(call);
    return call;
  }

  /** `before`: the deadline in ms of the server's clock, '' for none. Settles to the script's answer. */
  send({ key, data, ttl, ifAbsent, over }: SetRequest, before: number | ''): Pending<number> {
    const keys = this.keys.valueLeaseAndBarrier(key);
    this.reads.sendThoseOf(keys[0]);
    return this.batch.run(this.keys.channel, keys, [key, ttl, ifAbsent ? keptUnless(over) : '', before, data], Number);
  }
}

/** Which value SET replaces although it must keep an existing one: its digest; 1 for none. */
function keptUnless(over: Buffer | undefined): string | 1 {
  return over ? hash('sha1', over) : 1;
}

type SetAnswer = boolean | 'late';

class SetCall {
  /** On the monotonic clock, in ms. */
  private readonly until: number;

  constructor(
    private readonly writes: RedisCacheWrites,
    private readonly request: SetRequest,
  ) {
    this.until = performance.now() + (request.within ?? Infinity);
  }

  send(call: BatchedCall<SetAnswer>): void {
    if (this.until === Infinity) return this.sendBefore('', call);
    const { clock } = this.writes;
    const send = (ahead: number) => this.sendBefore(Math.floor(this.until + ahead), call);
    const { ahead } = clock;
    if (ahead === undefined) clock.read().then(send, (error: unknown) => call.fail(error));
    else send(ahead);
  }

  private sendBefore(before: number | '', call: BatchedCall<SetAnswer>): void {
    const answered = (reply: number) => {
      if (reply >= 0) return call.settle(reply === 1);
      // The server's clock was set forward, or another node with another clock answered: retry with its time, if there
      // is time left.
      const corrected = Math.floor(this.until + aheadBy(-reply));
      if (performance.now() >= this.until || corrected <= Number(before)) return call.settle('late');
      this.writes.clock.read().catch(() => {});
      this.sendBefore(corrected, call);
    };
    this.writes.send(this.request, before).then(answered, (error) => call.fail(error));
  }
}

/** How long (ms) a reading is used. After half of it, the clock is read again in the background. */
const TRUSTED = 30_000;

interface Reading {
  readonly ahead: number;
  readonly readAt: number;
  readonly disconnects: number;
}

/**
 * The difference in ms between the server's clock and the monotonic clock of this process. In a Cluster, that of the
 * master whose clock is furthest behind.
 */
class ServerClock {
  private known: Reading | undefined;
  private reading: Promise<number> | undefined;

  constructor(private readonly scripts: ScriptRunner) {}

  /** `undefined` when the clock has to be read first. */
  get ahead(): number | undefined {
    const { known, scripts } = this;
    // The new connection may lead to another server.
    if (!known || known.disconnects !== scripts.disconnects) return undefined;
    const age = performance.now() - known.readAt;
    if (age > TRUSTED) return undefined;
    if (age > TRUSTED / 2) this.read().catch(() => {});
    return known.ahead;
  }

  read(): Promise<number> {
    this.reading ??= this.ask().finally(() => (this.reading = undefined));
    return this.reading;
  }

  private async ask(): Promise<number> {
    const { client, disconnects } = this.scripts;
    const all = await Promise.all(
      mastersOf(client).map(async (node) => {
        const [seconds, micros] = (await this.scripts.command(() => node.time())).map(Number) as [number, number];
        return aheadBy(seconds * 1_000 + micros / 1_000);
      }),
    );
    const ahead = Math.min(...all);
    this.known = { ahead, readAt: performance.now(), disconnects };
    return ahead;
  }
}

/** The difference in ms, from a time that the server has just answered. */
function aheadBy(serverTime: number): number {
  return serverTime - performance.now();
}
