import type {
  BeginRequest,
  IdempotencyRecord,
  IdempotencyStore,
  KeepResultRequest,
} from '../../../../contracts/primitives/idempotency-store.js';
import { ReadBatch } from '../../cache/read-batch.js';
import type { RedisLink } from '../../redis-link.js';
import { BEGIN } from './begin.lua.js';
import { KEEP_RESULT } from './keep-result.lua.js';
import { dataOf, recordOf } from './record-format.js';

/**
 * The results of idempotent methods on Redis: one string for each key, `lock:{idempotency:<key>}:result`. It begins as
 * the keys of its lock do, so that the ACL rules of locks cover it.
 */
export class RedisIdempotencyStore implements IdempotencyStore {
  /** The reads of one turn of the event loop go in one command. */
  private readonly reads: ReadBatch;

  constructor(
    private readonly link: RedisLink,
    private readonly prefix: string | undefined,
  ) {
    this.reads = new ReadBatch(link.scripts);
  }

  async read(key: string): Promise<IdempotencyRecord | null> {
    const data = await new Promise<Buffer | null>((resolve, reject) => {
      this.reads.read(this.keyOf(key)).then(resolve, reject);
    });
    return data && recordOf(data);
  }

  async begin({ key, token, fingerprint, ttl }: BeginRequest): Promise<IdempotencyRecord> {
    const data = await this.link.scripts.runForBytes(BEGIN, [this.keyOf(key)], [token, fingerprint, ttl]);
    return recordOf(data as Buffer);
  }

  async keep({ key, record, ttl, evenIfForgotten }: KeepResultRequest): Promise<boolean> {
    const args = [record.token, ttl, evenIfForgotten ? 1 : '', dataOf(record)];
    return Number(await this.link.scripts.run(KEEP_RESULT, [this.keyOf(key)], args)) === 1;
  }

  private keyOf(key: string): string {
    return `${this.prefix === undefined ? '' : `${this.prefix}:`}lock:{idempotency:${key}}:result`;
  }
}
