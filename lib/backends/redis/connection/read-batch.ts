import { inspect } from 'node:util';
import type { Pending } from '../../../contracts/store.js';
import { BatchedCall } from '../../batch.js';
import { repliesOf } from './redis-script.js';
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
    const read: PendingRead = new BatchedCall(asRead);
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
    this.submit(keys, reads);
  }

  private submit(keys: readonly string[], reads: readonly PendingRead[]): void {
    const { client } = this.scripts;
    if (client.status !== 'ready' && this.scripts.defers(() => this.submit(keys, reads), failing(reads))) return;
    if (reads.length === 1) this.send(client.getBuffer(keys[0] as string), reads, (data) => [data]);
    else if (this.scripts.takesOneSlot) this.submitEach(keys, reads);
    else {
      this.send(
        client.mgetBuffer([...keys]),
        reads,
        (all) => repliesOf(all, reads.length) as readonly (Buffer | null)[],
        (error) => {
          if (this.scripts.refusesKeys(error)) this.submitEach(keys, reads);
          else failing(reads)(error);
        },
      );
    }
  }

  private submitEach(keys: readonly string[], reads: readonly PendingRead[]): void {
    const { client } = this.scripts;
    for (const [index, read] of reads.entries()) {
      this.send(client.getBuffer(keys[index] as string), [read], (data) => [data]);
    }
  }

  private send<T>(
    command: Promise<T>,
    reads: readonly PendingRead[],
    dataOf: (reply: T) => readonly (Buffer | null)[],
    failed = failing(reads),
  ): void {
    this.underWay += 1;
    this.scripts.ask(
      command,
      (reply) => {
        this.underWay -= 1;
        let data: readonly (Buffer | null)[];
        try {
          data = dataOf(reply);
        } catch (error) {
          return failing(reads)(error);
        }
        for (let index = 0; index < reads.length; index++) reads[index]?.settle(data[index] ?? null);
      },
      (error) => {
        this.underWay -= 1;
        failed(error);
      },
    );
  }
}

function failing(reads: readonly PendingRead[]): (error: unknown) => void {
  return (error) => {
    for (const read of reads) read.fail(error);
  };
}

function asRead(reply: unknown): Buffer | null {
  if (reply === null || Buffer.isBuffer(reply)) return reply;
  throw new Error(`Redis answered ${inspect(reply)} where the bytes of a value were due`);
}
