import type { Pending } from '../../../contracts/store.js';
import { BatchedCall } from '../../batch.js';
import type { ScriptArgument, ScriptCall, ScriptRequest } from './encoded-call.js';
import { repliesOf, type RedisScript } from './redis-script.js';
import type { ScriptRunner } from './script-runner.js';

/**
 * The most calls in one run of a script: the server works on one run while the next is gathered. 24 measured 1.2 times
 * the throughput of 64.
 */
const MOST_CALLS = 24;

/**
 * Runs a script once for all calls of one turn of the event loop, because sending a command costs the client and the
 * server more than the work of one call. While no run is under way, a call is sent at once, so a single call never
 * waits.
 *
 * In a Redis Cluster, where a script may touch one slot only, each call is a run of its own. Where Redis refuses the
 * keys of a run, each of its calls is sent alone: one bad key fails one call.
 */
export class ScriptBatch {
  private keys: string[] = [];
  private args: ScriptArgument[] = [];
  private calls: ScriptCall[] = [];
  private lastKeys: readonly string[] | undefined;
  private firstKey = 0;
  private shared: string | undefined;
  /** How many runs are not answered yet. */
  underWay = 0;
  private gathering = false;
  private readonly endTurn = () => {
    this.gathering = false;
    this.flush();
  };

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly script: RedisScript,
    /** 'numbered': a call whose list of keys is that of the call before shares them, see `batchOf`. */
    private readonly keysOfCalls: 'own' | 'numbered' = 'own',
  ) {}

  /**
   * `shared` is the first argument of the script, common to all calls of one run; `undefined` for a script without one.
   * `batchOf` describes the layout of keys and arguments.
   *
   * Settles to the result of `read` for the reply to this call; fails when this call or the whole script failed.
   */
  run<T>(
    shared: string | undefined,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    read: (reply: unknown) => T,
  ): Pending<T> {
    const call = new BatchedCall(read);
    if (this.underWay > 0 || this.calls.length > 0) this.gather(shared, keys, args, call);
    else {
      const first = shared === undefined ? [] : [shared];
      const all = this.keysOfCalls === 'numbered' ? [...first, 1, ...args] : [...first, ...args];
      const request = { script: this.script, keys, args: all };
      this.underWay = 1;
      if (!this.scripts.sendEncoded(request, call, this)) this.scripts.sendAlone({ request, call, batch: this });
    }
    return call;
  }

  /** As `run` without `shared`, for a call that other servers get, too. */
  runRequest(request: ScriptRequest, call: ScriptCall): void {
    if (this.underWay > 0 || this.calls.length > 0) return this.gather(undefined, request.keys, request.args, call);
    this.underWay = 1;
    if (!this.scripts.sendEncoded(request, call, this)) this.scripts.sendAlone({ request, call, batch: this });
  }

  /** Sends the calls of this turn that have been gathered, so that what is sent now comes after them. */
  sendGathered(): void {
    this.flush();
  }

  private gather(
    shared: string | undefined,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    call: ScriptCall,
  ): void {
    if (this.shared !== shared) this.flush();
    this.shared = shared;
    if (this.calls.length === 0 && shared !== undefined) this.args.push(shared);
    if (this.keysOfCalls === 'own' || keys !== this.lastKeys) {
      this.lastKeys = keys;
      this.firstKey = this.keys.length + 1;
      for (const key of keys) this.keys.push(key);
    }
    if (this.keysOfCalls === 'numbered') this.args.push(this.firstKey);
    for (const arg of args) this.args.push(arg);
    this.calls.push(call);
    if (this.underWay === 0 || this.calls.length >= MOST_CALLS || this.scripts.takesOneSlot) this.flush();
    else if (!this.gathering) {
      this.gathering = true;
      setImmediate(this.endTurn);
    }
  }

  private flush(): void {
    const { keys, args, calls, shared } = this;
    if (calls.length === 0) return;
    this.keys = [];
    this.lastKeys = undefined;
    this.args = [];
    this.calls = [];
    this.underWay += 1;
    this.scripts.send(
      this.script,
      keys,
      args,
      (reply) => {
        this.underWay -= 1;
        let replies: readonly unknown[];
        try {
          replies = calls.length === 1 ? [reply] : repliesOf(reply, calls.length);
        } catch (error) {
          for (const call of calls) call.fail(error);
          return;
        }
        for (const [index, call] of calls.entries()) {
          const answer = replies[index];
          if (answer instanceof Error) this.scripts.refused(answer);
          call.settle(answer);
        }
      },
      (error: unknown) => {
        this.underWay -= 1;
        if (calls.length > 1 && this.scripts.refusesKeys(error)) this.sendEach(keys, args, calls, shared);
        else for (const call of calls) call.fail(error);
      },
    );
  }

  /** Sends the calls of a run that Redis has not begun, each alone. */
  private sendEach(
    keys: readonly string[],
    args: readonly ScriptArgument[],
    calls: readonly ScriptCall[],
    shared: string | undefined,
  ): void {
    const before = args.slice(0, shared === undefined ? 0 : 1);
    const length = (args.length - before.length) / calls.length;
    const firstKeys =
      this.keysOfCalls === 'numbered' && calls.map((_, index) => Number(args[before.length + index * length]));
    for (const [index, call] of calls.entries()) {
      const own = args.slice(before.length + index * length, before.length + (index + 1) * length);
      const [from, to] = firstKeys
        ? [firstKeys[index] as number, firstKeys.find((key) => key > (firstKeys[index] as number))]
        : [(index * keys.length) / calls.length + 1, ((index + 1) * keys.length) / calls.length + 1];
      if (firstKeys) own[0] = 1;
      this.underWay += 1;
      this.scripts.send(
        this.script,
        keys.slice(from - 1, to && to - 1),
        [...before, ...own],
        (reply) => {
          this.underWay -= 1;
          call.settle(reply);
        },
        (error) => {
          this.underWay -= 1;
          call.fail(error);
        },
      );
    }
  }
}
