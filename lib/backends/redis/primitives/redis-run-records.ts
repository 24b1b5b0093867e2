import type { TicketRequest } from '../../../contracts/lock-requests.js';
import {
  type EndRunRequest,
  type EnterRunAnswer,
  type EnterRunRequest,
  type LeaveRunAnswer,
  type LeaveRunRequest,
  RECORD_TTL,
  type RunRecord,
  type RunRecords,
  type RunRequest,
} from '../../../contracts/primitive-stores.js';
import type { RedisLink } from '../connection/redis-link.js';
import { isOne, redisScript, type RedisInteger, type Stepwise } from '../connection/redis-script.js';
import { oneKeySteps } from '../locks/fencing-scripts.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { contend, takeIfFree } from '../locks/acquire.lua.js';
import { fencingScript, lockAt, MINT_ALONE, QUEUE, withFenceTtl } from '../locks/queue.lua.js';
import { LockKeys } from '../locks/redis-lock-keys.js';
import { queueAnswer, type QueueReply, releaseStatus } from '../locks/redis-lock-store.js';
import { keeping, releasing } from '../locks/release.lua.js';

/** One hash for each job, beside the key of its lock: `lock:{<name>}:run`. */
export class RedisRunRecords implements RunRecords {
  readonly enter?: (request: EnterRunRequest) => Promise<EnterRunAnswer>;
  readonly forget?: (request: TicketRequest) => Promise<void>;
  readonly leave?: (request: LeaveRunRequest) => Promise<LeaveRunAnswer>;
  private readonly scripts: ScriptRunner;
  private readonly keys: LockKeys;

  constructor(
    { scripts, client }: RedisLink,
    prefix: string | undefined,
    /** That of the locks; `undefined` where a grant takes more than one script. */
    fenceTtl: number | undefined,
  ) {
    this.scripts = scripts;
    const keys = (this.keys = new LockKeys(prefix));
    const publishing = keys.publishing(client);
    if (fenceTtl === undefined) return;
    const steps = stepsOf(fenceTtl);
    const entering = { ...withFenceTtl(ENTER_RUN, fenceTtl), stepwise: steps.enter };
    const leaving = { ...withFenceTtl(LEAVE_RUN, fenceTtl), stepwise: steps.leave };
    this.enter = async ({ name, by, atMostFor, lock }) => {
      const purpose = lock.claim === undefined ? '' : `${lock.claim}:${name}`;
      const args = [publishing, lock.ticket, lock.ttl, purpose, by, atMostFor, RECORD_TTL];
      const reply = await scripts.run(entering, [...keys.of(name), this.keyOf(name)], args);
      const [status, token, left = lock.ttl] = reply as RedisInteger[];
      if (Number(status) !== RECORDED) return queueAnswer(reply as QueueReply);
      const tokens = { first: Number(token), count: 1 };
      return { status: 'granted', tokens, remaining: Number(left), waiting: 0, recorded: true };
    };
    this.forget = async ({ name, ticket }) => {
      await scripts.run(FORGET_RUN, [this.keyOf(name)], [ticket]);
    };
    this.leave = async ({ name, token, by, took, atMostFor, succeeded, lock }) => {
      const { disconnects } = scripts;
      const outcome = succeeded ? 'yes' : 'no';
      const run = [token, by, took, atMostFor, outcome, RECORD_TTL];
      const args = [publishing, lock.ticket, lock.rest, ...run];
      const reply = await scripts.run(leaving, [...keys.of(name), this.keyOf(name)], args);
      const [released, recorded] = reply as RedisInteger[];
      const resent = scripts.disconnects !== disconnects;
      return { status: releaseStatus(released), resent, recorded: isOne(recorded) };
    };
  }

  begin(request: RunRequest): Promise<void> {
    return this.record(request, 0, '');
  }

  end(request: EndRunRequest): Promise<void> {
    return this.record(request, request.took, request.succeeded ? 'yes' : 'no');
  }

  async last(name: string): Promise<RunRecord | null> {
    const reply = (await this.scripts.run(LAST_RUN, [this.keyOf(name)], [])) as Reply;
    const [token, by = '', started, ended, succeeded, overdue] = reply;
    if (token === undefined) return null;
    return {
      token: Number(token),
      by,
      startedAt: Number(started),
      end: ended ? { at: Number(ended), succeeded: succeeded === 'yes' } : undefined,
      overdue: Number(overdue) === 1,
    };
  }

  private async record(request: RunRequest, took: number, outcome: string): Promise<void> {
    const { name, token, by, atMostFor } = request;
    await this.scripts.run(RECORD_RUN, [this.keyOf(name)], [token, by, took, atMostFor, outcome, RECORD_TTL]);
  }

  private keyOf(name: string): string {
    return `${this.keys.lock(name)}:run`;
  }
}

/**
 * What the scripts do with one key, while a Cluster migrates the slot: they record nothing, and LEAVE_RUN cannot cut a
 * lease.
 */
function stepsOf(fenceTtl: number): { enter: Stepwise; leave: Stepwise } {
  const { enqueue, release } = oneKeySteps(withFenceTtl(MINT_ALONE, fenceTtl));
  return {
    enter: enqueue,
    leave: async (run, keys, [publish, ticket, rest]) =>
      Number(rest) > 0 ? undefined : [await release(run, keys, [publish, ticket]), 0],
  };
}

/** What the script LAST_RUN returns. */
type Reply = [token?: string, by?: string, started?: string, ended?: string, succeeded?: string, overdue?: unknown];

/**
 * Records that a run of a scheduled job began, or that it ended. A run with a smaller token than the recorded one
 * changes nothing; of several ends of one run, the first counts.
 *
 * KEYS: 1 the record (a hash). ARGV: 1 fencing token, 2 label of the process, 3 ms since the run began, 4 how long it
 * may last in ms, 5 outcome: empty for a begin, 'yes' or 'no' for an end, 6 ttl of the record in ms. Returns 1 when the
 * run is the last one, otherwise 0.
 */
const RECORD_RUN = redisScript(`
${recording()}
return record_run(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
`);

function recording(): string {
  return `
local record_run = function(key, mine, by, took, at_most_for, outcome, ttl)
  local known, token = tonumber(redis.call('HGET', key, 'token') or '0'), tonumber(mine)
  if known > token then return 0 end
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local whole = function(number) return string.format('%.0f', number) end
  if known < token then
    local started = now - tonumber(took)
    redis.call('HSET', key, 'token', mine, 'by', by, 'started', whole(started),
      'due', whole(started + tonumber(at_most_for)), 'ended', '', 'succeeded', '')
  end
  if outcome ~= '' and redis.call('HGET', key, 'succeeded') == '' then
    redis.call('HSET', key, 'ended', whole(now), 'succeeded', outcome)
  end
  redis.call('PEXPIRE', key, ttl)
  return 1
end
`;
}

/** What ENTER_RUN returns first, beside what ACQUIRE_OR_ENQUEUE returns. */
const RECORDED = 3;

/**
 * Takes the name of a job as ACQUIRE_OR_ENQUEUE does, and with a name that was free records that a run begins. The
 * record has the ticket of that run, and what it replaced, in case that the run never begins.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters, 5 the record.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 lease in ms, 4 `claim:name` or empty, as of ACQUIRE_OR_ENQUEUE; 5
 * label of the process, 6 how long the run may last in ms, 7 ttl of the record in ms.
 * Returns {3, token} for a run that is recorded, and of a repeated request what is left of the lease; otherwise a list
 * as that of ACQUIRE_OR_ENQUEUE.
 */
const ENTER_RUN = fencingScript(`
local time
${contend()}
${recording()}
local enter = function(key, arg)
  local me, before = ARGV[arg], {}
  local known = redis.call('HGET', KEYS[5], 'token') or '0'
  if redis.call('GET', KEYS[key]) == me and redis.call('HGET', KEYS[5], 'entered') == known .. ' ' .. me then
    return {${RECORDED}, known, redis.call('PTTL', KEYS[key])}
  end
  ${takeIfFree(
    'key',
    'arg',
    `
    if token <= tonumber(known) then
      token = known + 1
      redis.call('SET', KEYS[key + 1], token + 1, 'PX', fence_ttl)
    end
    for i, field in ipairs({'token', 'by', 'started', 'due', 'ended', 'succeeded'}) do
      before[i] = redis.call('HGET', KEYS[5], field) or ''
    end
    local mine = string.format('%.0f', token)
    record_run(KEYS[5], mine, ARGV[arg + 3], 0, ARGV[arg + 4], '', ARGV[arg + 5])
    redis.call('HSET', KEYS[5], 'entered', mine .. ' ' .. me, 'before', table.concat(before, '\\n'))
    do return {${RECORDED}, mine} end`,
  )}
  return contend()(${lockAt('key')}, me, ARGV[arg + 1], ARGV[arg + 2])
end
return enter(1, 2)
`);

/**
 * Takes back the record of a run that never began. KEYS: 1 the record. ARGV: 1 ticket. Returns 1 if the record was of
 * that ticket, otherwise 0.
 */
const FORGET_RUN = redisScript(`
local field = function(name) return redis.call('HGET', KEYS[1], name) end
if field('entered') ~= (field('token') or '') .. ' ' .. ARGV[1] or field('succeeded') ~= '' then return 0 end
local before = field('before')
local token, by, started, due, ended, succeeded = string.match(before, '^(%d*)\\n(.*)\\n(%d*)\\n(%d*)\\n(%d*)\\n(%a*)$')
if token == '' then redis.call('DEL', KEYS[1]) return 1 end
redis.call('HSET', KEYS[1], 'token', token, 'by', by, 'started', started, 'due', due, 'ended', ended,
  'succeeded', succeeded)
return 1
`);

/**
 * Ends a run: frees its name as RELEASE does, or cuts its lease as KEEP does, and records the end as RECORD_RUN does,
 * unless the name was no longer its own: how it ended is then for its process to say.
 *
 * KEYS: 1 lock, 2 fence, 3 queue, 4 waiters, 5 the record.
 * ARGV: 1 how to publish (see QUEUE), 2 ticket, 3 rest of the lease in ms (0: none); then those of RECORD_RUN.
 * Returns what RELEASE returns, and 1 if the end is recorded.
 */
const LEAVE_RUN = fencingScript(`
${recording()}
local answer
if tonumber(ARGV[3]) > 0 then
  local cut = function()
    ${QUEUE}
    ${keeping()}
    return keep(1, ARGV[2], tonumber(ARGV[3]))
  end
  answer = cut()
else
  ${releasing()}
  answer = release(1, 2)
end
if answer == 1 then record_run(KEYS[5], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]) end
return {answer, answer}
`);

/**
 * Reads the last run of a scheduled job.
 *
 * KEYS: 1 the record. ARGV: none. Returns an empty list if there is none; otherwise token, label, begin (ms since
 * 1970), end (the same; empty without one), 'yes' or 'no' (empty without an end), and 1 if the run should have ended by
 * now, otherwise 0.
 */
const LAST_RUN = redisScript(`
local field = function(name) return redis.call('HGET', KEYS[1], name) end
local token = field('token')
if not token then return {} end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local overdue = 0
if now >= tonumber(field('due')) then overdue = 1 end
return {token, field('by'), field('started'), field('ended'), field('succeeded'), overdue}
`);
