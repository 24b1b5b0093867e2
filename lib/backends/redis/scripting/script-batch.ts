import type { Pending } from '../../../contracts/lock-backend.js';
import { BatchedCall } from './batched-call.js';
import type { ScriptArgument, ScriptRunner } from './script-runner.js';
import type { RedisScript } from './redis-script.js';

/**
 * Calls in one run of a script: the server works on it while the next one is gathered. Measured: 24 gives 1.2 times
 * what 64 does.
 */
const MOST_CALLS = 24;

/**
 * Runs a script that takes many calls at once, on those of one turn of the event loop together: a command costs the
 * client and the server more than what it asks for. A call is sent at once when no other is under way, so that one
 * alone never waits.
 *
 * In a Redis Cluster, where a script may touch one slot only, each call is sent alone.
 */
export class ScriptBatch {
  private keys: string[] = [];
  private args: ScriptArgument[] = [];
  private calls: Pick<BatchedCall<unknown>, 'settle' | 'fail'>[] = [];
  private channels = '';
  private underWay = 0;
  private gathering = false;
  private readonly endTurn = () => {
    this.gathering = false;
    this.flush();
  };

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly script: RedisScript,
  ) {}

  /**
   * `channels` is what the channels that the script may tell of a grant begin with.
   *
   * Settles to what `read` makes of the reply to this call; fails when it, or the whole script, failed.
   */
  run<T>(
    channels: string,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    read: (reply: unknown) => T,
  ): Pending<T> {
    if (this.channels !== channels) this.flush();
    this.channels = channels;
    if (this.calls.length === 0) this.args.push(`${this.scripts.counted}${channels}`);
    for (const key of keys) this.keys.push(key);
    for (const arg of args) this.args.push(arg);
    const call = new BatchedCall(read);
    this.calls.push(call);
    if (this.underWay === 0 || this.calls.length >= MOST_CALLS || this.scripts.client.isCluster) this.flush();
    else if (!this.gathering) {
      this.gathering = true;
      setImmediate(this.endTurn);
    }
    return call;
  }

  private flush(): void {
    const { keys, args, calls } = this;
    if (calls.length === 0) return;
    this.keys = [];
    this.args = [];
    this.calls = [];
    this.underWay += 1;
    this.scripts.send(
      this.script,
      keys,
      args,
      (reply) => {
        this.underWay -= 1;
        const replies = calls.length === 1 ? [reply] : (reply as unknown[]);
        for (const [index, call] of calls.entries()) {
          const answer = replies[index];
          if (answer instanceof Error) this.scripts.refused(answer);
          call.settle(answer);
        }
      },
      (error: unknown) => {
        this.underWay -= 1;
        for (const call of calls) call.fail(error);
      },
    );
  }
}
