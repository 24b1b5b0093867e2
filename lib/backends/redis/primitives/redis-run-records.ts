import {
  type EndRunRequest,
  RECORD_TTL,
  type RunRecord,
  type RunRecords,
  type RunRequest,
} from '../../../contracts/primitive-stores.js';
import { redisScript } from '../connection/redis-script.js';
import type { ScriptRunner } from '../connection/script-runner.js';
import { lockKey } from '../locks/redis-lock-keys.js';

/** One hash for each job, beside the key of its lock: `lock:{<name>}:run`. */
export class RedisRunRecords implements RunRecords {
  constructor(
    private readonly scripts: ScriptRunner,
    private readonly prefix: string | undefined,
  ) {}

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
    return `${lockKey({ prefix: this.prefix, name })}:run`;
  }
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
local known = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local token = tonumber(ARGV[1])
if known > token then return 0 end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local whole = function(number) return string.format('%.0f', number) end
if known < token then
  local started = now - tonumber(ARGV[3])
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'by', ARGV[2], 'started', whole(started),
    'due', whole(started + tonumber(ARGV[4])), 'ended', '', 'succeeded', '')
end
if ARGV[5] ~= '' and redis.call('HGET', KEYS[1], 'succeeded') == '' then
  redis.call('HSET', KEYS[1], 'ended', whole(now), 'succeeded', ARGV[5])
end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return 1
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
