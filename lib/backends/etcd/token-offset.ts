import type { TokenRange } from '../../contracts/lock-backend.js';
import {
  decode,
  get,
  isUnchanged,
  putForGood,
  type Compare,
  type KeyValue,
  type Operation,
  type EtcdTransactions,
  type Outcome,
} from './etcd-transactions.js';

/** How many tokens belong to one revision of etcd. */
const TOKENS = 1_024;
/** No number that is made from a clock is above this. */
const LATEST = 2 ** 52;
/** How often a request is sent at most that other processes hinder. */
const MOST_TRIES = 100;

/**
 * Turns revisions of etcd into fencing tokens: each revision has 1,024 of them, above a number that etcd keeps and that
 * is only ever raised. Every transaction that mints tokens requires that the number is the one we know.
 */
export class TokenOffset {
  private offset = 0;
  /** The revision at which it was written; 0 while it never was. */
  private writtenAt = '0';
  /** Whether etcd may have lost the number: its key was deleted, or etcd was restored from a backup. */
  private lost = false;
  private restoring: Promise<void> | undefined;

  constructor(
    private readonly key: string,
    private readonly transactions: EtcdTransactions,
  ) {
    transactions.whenLost((newest) => this.outlive(newest));
  }

  /** Holds while the number that we know is the present one. */
  guard(): Compare {
    return isUnchanged(this.key, this.writtenAt);
  }

  /** Reads the number, for `learn`. */
  read(): Operation {
    return get(this.key);
  }

  /** `kv`: what a read found; `undefined` when the key is absent. */
  learn(kv: KeyValue | undefined): void {
    const revision = kv?.mod_revision ?? '0';
    if (revision === this.writtenAt) return;
    if (Number(revision) > Number(this.writtenAt) && offsetIn(kv) >= this.offset) this.adopt(kv);
    // Or the answer is late: `restore` reads again.
    else this.lost = true;
  }

  /** Before a request is sent again that the guard refused: writes the number again where etcd has lost it. */
  async restore(): Promise<void> {
    if (this.lost) await (this.restoring ??= this.writeAgain().finally(() => (this.restoring = undefined)));
  }

  /** The tokens of a revision at which we have written. `offset` is the number then, where we may not know it. */
  tokensOf(revision: number, offset = this.offset): TokenRange {
    return { first: offset + revision * TOKENS, count: TOKENS };
  }

  /** No token of a later revision is below this. */
  leastAfter(revision: number): number {
    return this.offset + (revision + 1) * TOKENS;
  }

  /** What to send in a message: only its receiver learns the revision at which it is written. */
  get value(): number {
    return this.offset;
  }

  /** Makes every later token at least `least`. */
  async raiseTo(least: number): Promise<void> {
    for (let tries = 0; this.lacking(least) > 0; tries += 1) {
      if (tries > 0) await this.tryAgain(tries);
      this.learn(await this.write(this.offset + this.lacking(least)));
    }
  }

  /**
   * Makes every later token greater than `token`: a cluster may have a revision of 1. And greater than the present time
   * in microseconds: so the tokens of a process that begins after a loss of data are above all earlier ones, too.
   */
  async startAfter(token: number): Promise<void> {
    this.learn((await this.transactions.read([this.read()])).first(0));
    await this.restore();
    for (let tries = 0; this.offset < token; tries += 1) {
      if (tries > 0) await this.tryAgain(tries);
      this.learn(await this.write(token));
    }
    await this.raiseTo(Math.min(Date.now() * 1_000, LATEST));
  }

  /**
   * Before the next try of a request that was refused because another process changed the same keys, or the number.
   *
   * @throws Error after too many tries
   */
  async tryAgain(tries: number): Promise<void> {
    if (tries >= MOST_TRIES) throw new Error(`gave up after ${MOST_TRIES} tries, between which its keys changed`);
    await this.restore();
  }

  /** etcd has lost all after an earlier revision: makes every later token greater than those of `newest` and before. */
  private async outlive(newest: number): Promise<void> {
    this.offset = this.leastAfter(newest);
    this.lost = true;
    for (let tries = 0; this.lost; tries += 1) await this.tryAgain(tries);
  }

  private lacking(least: number): number {
    return least - this.leastAfter(this.transactions.revision);
  }

  private async writeAgain(): Promise<void> {
    let present = (await this.transactions.read([this.read()])).first(0);
    if (offsetIn(present) < this.offset) present = await this.write(this.offset, present?.mod_revision ?? '0');
    if (offsetIn(present) >= this.offset) this.adopt(present);
  }

  private adopt(kv: KeyValue | undefined): void {
    this.offset = offsetIn(kv);
    this.writtenAt = kv?.mod_revision ?? '0';
    this.lost = false;
  }

  /** Writes the number, unless it was written after the revision `since`. Returns what is there after that. */
  private async write(offset: number, since = this.writtenAt): Promise<KeyValue | undefined> {
    const outcome: Outcome = await this.transactions.run({
      compare: [isUnchanged(this.key, since)],
      success: [putForGood(this.key, String(offset)), this.read()],
      failure: [this.read()],
    });
    return outcome.first(outcome.succeeded ? 1 : 0);
  }
}

/** 0 where somebody else wrote what is no number of ours: it counts as lost. */
function offsetIn(kv: KeyValue | undefined): number {
  const number = Number(decode(kv?.value));
  return Number.isSafeInteger(number) ? number : 0;
}
