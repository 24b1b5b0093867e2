import type {
  BeginRequest,
  EnterAnswer,
  EnterRequest,
  ForgetAttemptRequest,
  IdempotencyRecord,
  IdempotencyState,
  IdempotencyStore,
  KeepResultRequest,
  LeaveAnswer,
  LeaveRequest,
} from '../../../contracts/primitive-stores.js';
import type { Pending } from '../../../contracts/store.js';
import { ReadBatch } from '../connection/read-batch.js';
import type { RedisLink } from '../connection/redis-link.js';
import { batchOf, isOne, redisScript, type RedisInteger, type Stepwise } from '../connection/redis-script.js';
import { type ScriptArgument, ScriptBatch } from '../connection/script-batch.js';
import { contend, takeIfFree } from '../locks/acquire.lua.js';
import { oneKeySteps } from '../locks/fencing-scripts.js';
import { fencingScript, lockAt, MINT_ALONE, withFenceTtl } from '../locks/queue.lua.js';
import { LockKeys } from '../locks/redis-lock-keys.js';
import { queueAnswer, type QueueReply, releaseStatus } from '../locks/redis-lock-store.js';
import { releasing } from '../locks/release.lua.js';

/**
 * The results of idempotent methods on Redis: one string for each key, `lock:{idempotency:<key>}:result`. It begins as
 * the keys of its lock do, so that the ACL rules of locks cover it.
 */
export class RedisIdempotencyStore implements IdempotencyStore {
  readonly enter?: (request: EnterRequest) => Pending<EnterAnswer>;
  readonly leave?: (request: LeaveRequest) => Pending<LeaveAnswer>;
  /** The reads of one turn of the event loop go in one command. */
  private readonly reads: ReadBatch;

  constructor(
    private readonly link: RedisLink,
    private readonly prefix: string | undefined,
    /** That of the locks; `undefined` where a grant takes more than one script. */
    fenceTtl: number | undefined,
  ) {
    this.reads = new ReadBatch(link.scripts);
    if (fenceTtl === undefined) return;
    const steps = stepsOf(fenceTtl);
    const enter = { ...withFenceTtl(ENTER, fenceTtl), bytes: true, stepwise: steps.enter };
    const enters = new ScriptBatch(link.scripts, enter);
    const locks = new LockKeys(prefix);
    const publishing = locks.publishing(link.client);
    const leaves = new ScriptBatch(link.scripts, { ...withFenceTtl(LEAVE, fenceTtl), stepwise: steps.leave });
    this.enter = ({ key, fingerprint, ttl, lock }) => {
      const purpose = lock.claim === undefined ? '' : `${lock.claim}:${lock.name}`;
      const args = [lock.ticket, lock.ttl, purpose, fingerprint, ttl];
      const keys = [...locks.of(lock.name), this.keyOf(key)];
      return enters.run(publishing, keys, args, (reply) => enterAnswer(reply, lock.ttl));
    };
    this.leave = ({ key, record, ttl, evenIfForgotten, lock }) => {
      const { scripts } = link;
      const { disconnects } = scripts;
      const args = [lock.ticket, record.token, ttl, evenIfForgotten ? 1 : '', dataOf(record)];
      const keys = [...locks.of(lock.name), this.keyOf(key)];
      return leaves.run(publishing, keys, args, (reply) => {
        const [kept, released] = reply as RedisInteger[];
        return { kept: isOne(kept), status: releaseStatus(released), resent: scripts.disconnects !== disconnects };
      });
    };
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

  async forget(request: ForgetAttemptRequest): Promise<void> {
    const args = 'token' in request ? [request.token, ''] : ['', request.ticket];
    await this.link.scripts.run(FORGET_ATTEMPT, [this.keyOf(request.key)], args);
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

type BeginReply = [
  status: RedisInteger,
  token: Buffer,
  attempt: RedisInteger,
  fingerprint: Buffer,
  left?: RedisInteger,
];

/** See `ENTER`. Text comes as Buffers. */
function enterAnswer(reply: unknown, ttl: number): EnterAnswer {
  const [status, record] = reply as [status: RedisInteger, record: Buffer];
  if (Number(status) === ANSWERED) return { status: 'answered', record: recordOf(record) };
  if (Number(status) !== BEGUN) return queueAnswer(reply as QueueReply);
  const [, first, attempt, fingerprint, left = ttl] = reply as BeginReply;
  const token = Number(first);
  const begun = { token, attempt: Number(attempt), fingerprint: fingerprint.toString(), payload: Buffer.alloc(0) };
  return {
    status: 'granted',
    tokens: { first: token, count: 1 },
    remaining: Number(left),
    waiting: 0,
    begun: { ...begun, state: 'running' },
  };
}

/** What the two scripts do in steps of one key each, while a Cluster migrates the slot: no attempt begins yet. */
function stepsOf(fenceTtl: number): { enter: Stepwise; leave: Stepwise } {
  const { enqueue, release } = oneKeySteps(withFenceTtl(MINT_ALONE, fenceTtl));
  return {
    enter: enqueue,
    async leave(run, keys, [publish = '', ticket = '', token = '', ttl = '', even = '', record = '']) {
      const kept = await run(KEEP_RESULT, [keys[4] as string], [token, ttl, even, record] as ScriptArgument[]);
      return [kept, await release(run, keys, [publish, ticket])];
    },
  };
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
${keepingResult()}
return keep_result(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
`);

function keepingResult(): string {
  return `
local keep_result = function(key, mine, ttl, even_if_forgotten, result)
  local record = redis.call('GET', key)
  if record then
    local state, token = string.match(record, '^(%a) (%d+) ')
    if state ~= 'r' then return token == mine and 1 or 0 end
    if tonumber(token) > tonumber(mine) then return 0 end
  elseif even_if_forgotten == '' then return 0 end
  redis.call('SET', key, result, 'PX', ttl)
  return 1
end
`;
}

/** What ENTER returns first, beside what ACQUIRE_OR_ENQUEUE returns. */
const [ANSWERED, BEGUN] = [2, 3];

/**
 * The first request of a call: answers the record if it says all; otherwise takes the lock, or queues the ticket, as
 * ACQUIRE_OR_ENQUEUE does. With a lock that was free, an attempt begins, as in BEGIN. The payload of its record is the
 * ticket: a repeated request finds it there, and gets the same answer.
 *
 * KEYS, for each call: lock, fence, queue, waiters, record.
 * ARGV: 1 how to publish (see QUEUE); then for each call the ticket, the lease in ms for a grant at once, `claim:name`
 * as of ACQUIRE_OR_ENQUEUE, the fingerprint (or empty), and the time to live of the attempt in ms.
 * Returns for each call {2, record} for a result that is kept or another fingerprint; {3, token, attempt, fingerprint}
 * for an attempt that has begun, and of a repeated request what is left of the lease; otherwise a list as that of
 * ACQUIRE_OR_ENQUEUE.
 */
export const ENTER = fencingScript(`
local time, queue

${contend()}

local enter = function(key, arg)
  local record = redis.call('GET', KEYS[key + 4])
  local me, attempt, fingerprint, last = ARGV[arg], 1, ARGV[arg + 3], 0
  if record then
    local state, token, begun, known, ticket = string.match(record, '^(%a) (%d+) (%d+) (%x*)\\n(.*)$')
    if state ~= 'r' then return {${ANSWERED}, record} end
    if known ~= '' and fingerprint ~= '' and known ~= fingerprint then return {${ANSWERED}, record} end
    if ticket == me and redis.call('GET', KEYS[key]) == me then
      return {${BEGUN}, token, tonumber(begun), known, redis.call('PTTL', KEYS[key])}
    end
    if fingerprint == '' then fingerprint = known end
    attempt, last = begun + 1, tonumber(token)
  end
  ${takeIfFree(
    'key',
    'arg',
    `
    if token <= last then
      token = last + 1
      redis.call('SET', KEYS[key + 1], token + 1, 'PX', fence_ttl)
    end
    local mine = string.format('%.0f', token)
    record = string.format('r %s %d %s\\n', mine, attempt, fingerprint) .. me
    redis.call('SET', KEYS[key + 4], record, 'PX', ARGV[arg + 4])
    do return {${BEGUN}, mine, attempt, fingerprint} end`,
  )}
  queue = queue or contend()
  return queue(${lockAt('key')}, me, ARGV[arg + 1], ARGV[arg + 2])
end

${batchOf('enter', { keys: 5, args: 5, shared: 1 })}
`);

/**
 * The last request of a call: keeps its result, as KEEP_RESULT does, and then releases its lock, as RELEASE does.
 *
 * KEYS, for each call: lock, fence, queue, waiters, record.
 * ARGV: 1 how to publish (see QUEUE); then for each call the ticket, and the arguments of KEEP_RESULT.
 * Returns for each call what KEEP_RESULT returns, and what RELEASE returns.
 */
export const LEAVE = fencingScript(`
${keepingResult()}
${releasing()}

local leave = function(key, arg)
  local kept = keep_result(KEYS[key + 4], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4])
  return {kept, release(key, arg)}
end

${batchOf('leave', { keys: 5, args: 5, shared: 1 })}
`);

/**
 * Takes back the begin of an attempt that did nothing. Attempts before it, which may have done something, still count,
 * and so does their fingerprint. The record then has a smaller token, so that a repeated request finds no more to do.
 *
 * KEYS: record, as in BEGIN.
 * ARGV: token, or empty for the attempt that ENTER began for this ticket: 2.
 * Returns 1 if the record was of this attempt, else 0.
 */
const FORGET_ATTEMPT = redisScript(`
local record = redis.call('GET', KEYS[1])
if not record then return 0 end
local state, token, begun, fingerprint, ticket = string.match(record, '^(%a) (%d+) (%d+) (%x*)\\n(.*)$')
local mine = ARGV[1] == '' and ticket == ARGV[2] or token == ARGV[1]
if state ~= 'r' or not mine then return 0 end
local left = redis.call('PTTL', KEYS[1])
if tonumber(begun) <= 1 or left <= 0 then redis.call('DEL', KEYS[1]) return 1 end
redis.call('SET', KEYS[1], string.format('r %d %d %s\\n', token - 1, begun - 1, fingerprint), 'PX', left)
return 1
`);
