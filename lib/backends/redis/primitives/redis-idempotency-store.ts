import type {
  BeginRequest,
  ForgetAttemptRequest,
  IdempotencyRecord,
  IdempotencyState,
  IdempotencyStore,
  KeepResultRequest,
} from '../../../contracts/primitive-stores.js';
import { ReadBatch } from '../connection/read-batch.js';
import type { RedisLink } from '../connection/redis-link.js';
import { isOne, redisScript } from '../connection/redis-script.js';

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
    return isOne(await this.link.scripts.run(KEEP_RESULT, [this.keyOf(key)], args));
  }

  async forget({ key, token }: ForgetAttemptRequest): Promise<void> {
    await this.link.scripts.run(FORGET_ATTEMPT, [this.keyOf(key)], [token]);
  }

  private keyOf(key: string): string {
    return `${this.prefix === undefined ? '' : `${this.prefix}:`}lock:{idempotency:${key}}:result`;
  }
}

/** The record as Redis keeps it: see `BEGIN`. */
function dataOf(record: KeepResultRequest['record']): string | Buffer {
  const { state, token, attempt, fingerprint, payload } = record;
  // What the scripts read.
  const head = `${LETTERS[state]} ${token} ${attempt} ${fingerprint}\n`;
  return typeof payload === 'string' ? head + payload : Buffer.concat([Buffer.from(head), payload]);
}

/** @throws Error for data that this library did not write */
function recordOf(data: Buffer): IdempotencyRecord {
  const end = data.indexOf(LINE_FEED);
  const [letter, token, attempt, fingerprint] = data.toString('latin1', 0, end).split(' ');
  const state = STATES.get(letter as (typeof LETTERS)[IdempotencyState]);
  if (end < 0 || state === undefined || fingerprint === undefined) {
    throw new Error('the key holds data that this library did not write; delete it');
  }
  return { state, token: Number(token), attempt: Number(attempt), fingerprint, payload: data.subarray(end + 1) };
}

const LETTERS = { running: 'r', value: 'v', undefined: 'u', error: 'e', unkept: 'x' } as const;
const STATES = new Map(Object.entries(LETTERS).map(([state, letter]) => [letter, state as IdempotencyState]));
const LINE_FEED = 10;

/**
 * Notes that an attempt begins, unless a result is kept, the attempt before it had another fingerprint, or a newer one
 * has begun. The lock of the key is held meanwhile; the token is the one of this hold.
 *
 * The record is a string: state (`r` while running), token, attempt and fingerprint, with a space between them, a line
 * feed, and the payload.
 *
 * KEYS: record.
 * ARGV: token, fingerprint (or empty), time to live in ms.
 * Returns the record that is now there. A repeated request gets the same answer, because the record has its token.
 */
export const BEGIN = redisScript(`
local record = redis.call('GET', KEYS[1])
local attempt, fingerprint = 1, ARGV[2]
if record then
  local state, token, begun, known = string.match(record, '^(%a) (%d+) (%d+) (%x*)\\n')
  if state ~= 'r' or tonumber(token) >= tonumber(ARGV[1]) then return record end
  if known ~= '' and fingerprint ~= '' and known ~= fingerprint then return record end
  if fingerprint == '' then fingerprint = known end
  attempt = begun + 1
end
record = string.format('r %s %d %s\\n', ARGV[1], attempt, fingerprint)
redis.call('SET', KEYS[1], record, 'PX', ARGV[3])
return record
`);

/**
 * Keeps the result of an attempt, unless a result is kept already or a newer attempt has begun: a holder that was
 * frozen beyond its lease cannot overwrite what a later one has done.
 *
 * KEYS: record, as in BEGIN.
 * ARGV: token, time to live in ms, 1 to keep it also if there is no record (else empty), the new record.
 * Returns 1 if the result of this attempt is kept, else 0. A repeated request gets the same answer, because the record
 * has its token.
 */
export const KEEP_RESULT = redisScript(`
local record = redis.call('GET', KEYS[1])
if record then
  local state, token = string.match(record, '^(%a) (%d+) ')
  if state ~= 'r' then return token == ARGV[1] and 1 or 0 end
  if tonumber(token) > tonumber(ARGV[1]) then return 0 end
elseif ARGV[3] == '' then return 0 end
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[2])
return 1
`);

/**
 * Takes back the begin of an attempt that did nothing. Attempts before it, which may have done something, still count,
 * and so does their fingerprint. The record then has a smaller token, so that a repeated request finds no more to do.
 *
 * KEYS: record, as in BEGIN.
 * ARGV: token.
 * Returns 1 if the record was of this attempt, else 0.
 */
export const FORGET_ATTEMPT = redisScript(`
local record = redis.call('GET', KEYS[1])
if not record then return 0 end
local state, token, begun, fingerprint = string.match(record, '^(%a) (%d+) (%d+) (%x*)\\n')
if state ~= 'r' or token ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if tonumber(begun) <= 1 or left <= 0 then redis.call('DEL', KEYS[1]) return 1 end
redis.call('SET', KEYS[1], string.format('r %d %d %s\\n', token - 1, begun - 1, fingerprint), 'PX', left)
return 1
`);
