import type { SetRequest } from '../../../contracts/cache-store.js';
import type { Pending } from '../../../contracts/pending.js';
import { ScriptBatch } from '../scripting/script-batch.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import type { ReadBatch } from './read-batch.js';
import type { RedisCacheKeys } from './redis-cache-keys.js';
import { SET } from './scripts/set.lua.js';
import { aheadBy, ServerClock } from './server-clock.js';

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
    return new SetCall(this, request);
  }

  /** `before`: the deadline in ms of the server's clock, '' for none. Settles to the script's answer. */
  send({ key, data, ttl, ifAbsent }: SetRequest, before: number | ''): Pending<number> {
    const keys = this.keys.valueLeaseAndBarrier(key);
    this.reads.sendThoseOf(keys[0]);
    return this.batch.run(this.keys.channel, keys, [key, ttl, ifAbsent ? 1 : '', before, data], Number);
  }
}

type SetAnswer = boolean | 'late';

/** Sends the request when `then` is called. */
class SetCall implements Pending<SetAnswer> {
  /** On the monotonic clock, in ms. */
  private readonly until: number;

  constructor(
    private readonly writes: RedisCacheWrites,
    private readonly request: SetRequest,
  ) {
    this.until = performance.now() + (request.within ?? Infinity);
  }

  then(answered: (answer: SetAnswer) => void, failed: (error: unknown) => void): void {
    if (this.until === Infinity) return this.send('', answered, failed);
    const { clock } = this.writes;
    const send = (ahead: number) => this.send(Math.floor(this.until + ahead), answered, failed);
    const { ahead } = clock;
    if (ahead === undefined) clock.read().then(send, failed);
    else send(ahead);
  }

  private send(before: number | '', answered: (answer: SetAnswer) => void, failed: (error: unknown) => void): void {
    this.writes.send(this.request, before).then((reply) => {
      if (reply >= 0) return answered(reply === 1);
      // The server's clock was set forward, or another node with another clock answered: retry with its time, if there
      // is time left.
      const corrected = Math.floor(this.until + aheadBy(-reply));
      if (performance.now() >= this.until || corrected <= Number(before)) return answered('late');
      this.writes.clock.read().catch(() => {});
      this.send(corrected, answered, failed);
    }, failed);
  }
}
