import type { Pending } from '../../../contracts/store.js';
import { BatchedCall } from '../../batch.js';
import type { RedisNode } from './redis-client.js';
import { CHECK } from './redis-script.js';
import type { ScriptRunner } from './script-runner.js';

/**
 * The most keys in one MGET: the server works on it while the next one is gathered. 48 measured 1.2 times the
 * throughput of 128.
 */
const MOST_KEYS = 48;

type PendingRead = BatchedCall<Buffer | null>;

/**
 * Sends the reads of one turn of the event loop as one MGET, because a command costs the client and the server more
 * than a value. In a Redis Cluster, where a command may touch only one slot, and where Redis refuses
 * one of the keys, sends one GET for each.
 */
export class ReadBatch {
  private keys: string[] = [];
  private reads: PendingRead[] = [];
  private underWay = 0;
  private lastWasAlone = true;
  private gathering = false;
  private readonly endTurn = () => {
    this.gathering = false;
    this.flush();
  };

  constructor(private readonly scripts: ScriptRunner) {}

  read(key: string): Pending<Buffer | null> {
    const read: PendingRead = new BatchedCall();
    this.keys.push(key);
    this.reads.push(read);
    if (this.reads.length >= MOST_KEYS || (this.underWay === 0 && this.lastWasAlone)) this.flush();
    else if (!this.gathering) {
      this.gathering = true;
      // While a command is under way there is time to gather for the rest of this turn. Otherwise sends once the
      // callers that the last reply resumed have asked; at once, if there was only one.
      if (this.underWay === 0) process.nextTick(this.endTurn);
      else setImmediate(this.endTurn);
    }
    return read;
  }

  /** Sends what is gathered if it includes this key, which is about to be changed. */
  sendThoseOf(key: string): void {
    if (this.keys.length > 0 && this.keys.includes(key)) this.flush();
  }

  private flush(): void {
    const { keys, reads } = this;
    if (reads.length === 0) return;
    this.keys = [];
    this.reads = [];
    this.lastWasAlone = reads.length === 1;
    this.send(keys, reads);
  }

  private sendEach(keys: readonly string[], reads: readonly PendingRead[]): void {
    for (const [index, read] of reads.entries()) this.send([keys[index] as string], [read]);
  }

  /**
   * No two reads in a row have replies of one form: one value, or a list of a certain length. So where a reply is lost
   * or comes twice on the way, the next one is no answer, rather than the values of other keys. Not in a Cluster: its
   * nodes answer by connections of their own, and node-redis sends an MGET later than what is called after it.
   */
  private send(keys: readonly string[], reads: readonly PendingRead[]): void {
    const { scripts } = this;
    const { client } = scripts;
    const { length } = reads;
    if (client.status !== 'ready' && scripts.defers(() => this.send(keys, reads), failing(reads))) return;
    if (length > 1 && scripts.takesOneSlot) return this.sendEach(keys, reads);
    const alone = length === 1 && (scripts.takesOneSlot || scripts.lastRead !== 0);
    const listed = length === scripts.lastRead ? [...keys, keys[0] as string] : [...keys];
    const form = (scripts.lastRead = alone ? 0 : listed.length);
    this.underWay += 1;
    let sent: Promise<unknown>;
    try {
      sent = alone ? client.getBuffer(keys[0] as string) : client.mgetBuffer(listed);
    } catch (error) {
      sent = Promise.reject(error);
    }
    scripts.ask<unknown>(
      sent,
      (reply) => {
        this.underWay -= 1;
        const values: readonly unknown[] = alone ? [reply] : Array.isArray(reply) ? reply : [];
        let mixed = values.length !== (form || 1) || (form === 2 && scripts.isOfScript(values));
        for (const value of values) mixed ||= value !== null && !Buffer.isBuffer(value);
        if (mixed) return failing(reads)(scripts.mixedUp());
        for (let index = 0; index < length; index++) reads[index]?.settle(values[index]);
      },
      (error) => {
        this.underWay -= 1;
        if (length > 1 && scripts.refusesKeys(error)) this.sendEach(keys, reads);
        else failing(reads)(error);
      },
    );
  }
}

function failing(reads: readonly PendingRead[]): (error: unknown) => void {
  return (error) => {
    for (const read of reads) read.fail(error);
  };
}

/**
 * Sends a command at one node of a Cluster or on the client itself, and a script right behind it, whose reply shows
 * that none was lost or doubled before. For what must be a command: a proxy before several servers asks all of them for
 * their keys, and runs a script on one.
 *
 * @throws Error where the reply may belong to another command
 */
export async function inOrder<T>(scripts: ScriptRunner, node: RedisNode, send: () => Promise<T>): Promise<T> {
  let checked = false;
  const sent = scripts.command(send).then((reply) => ({ reply, isLate: checked }));
  const check = scripts.runOn(node, CHECK, []).then(() => (checked = true));
  const [{ reply, isLate }] = await Promise.all([sent, check]);
  // It was sent again, as to a server that was loading its data.
  if (isLate) await scripts.runOn(node, CHECK, []);
  return reply;
}

/** How often a step of a scan is sent, because the connection broke. */
const MOST_TIMES = 5;

/** One step of SCAN: else the keys of another scan would be deleted, or none where there are some. */
export async function scanOn(
  scripts: ScriptRunner,
  node: RedisNode,
  args: readonly (string | number)[],
): Promise<[cursor: string, keys: string[]]> {
  for (let time = 1; time <= MOST_TIMES; time++) {
    const { disconnects } = scripts;
    const reply = await inOrder(scripts, node, () => node.call('scan', [...args]));
    // Otherwise the script may have been sent again alone, on another connection.
    if (scripts.disconnects === disconnects) return reply as [string, string[]];
  }
  throw new Error(`The connection broke in each of ${MOST_TIMES} steps of a scan`);
}
