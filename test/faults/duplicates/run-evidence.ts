import { Redis } from 'ioredis';

/**
 * What was seen of the runs and answers of idempotency keys, on a Redis server of its own that no fault touches. For
 * each key a hash: `token`, the highest fencing token of a run, with its `run` and `attempt`; `ended:<run>` for each
 * run that ended while its token was the highest; `answer`, the run whose result a caller got, and `answers`, how many
 * callers did.
 */
const NOTE = `
local function note(what)
  if redis.call('HINCRBY', KEYS[1], 'findings', 1) <= 50 then redis.call('RPUSH', KEYS[2], what) end
end
`;

const SEEN = `
${NOTE}
local key = KEYS[3]
local function seen(field) return redis.call('HGET', key, field) or '0' end
`;

const SCRIPTS = {
  /** KEYS: tally, findings, key. ARGV: token, run, attempt. Returns 1, or 0 if a later attempt has begun. */
  began: `${SEEN}
if tonumber(ARGV[1]) < tonumber(seen('token')) then return 0 end
if ARGV[1] == seen('token') then note(key .. ': two runs with token ' .. ARGV[1]) end
local before = seen('attempt')
if tonumber(ARGV[3]) <= tonumber(before) then note(key .. ': attempt ' .. ARGV[3] .. ' after ' .. before) end
if seen('answer') ~= '0' then note(key .. ': attempt ' .. ARGV[3] .. ' began after an answer was given') end
redis.call('HSET', key, 'token', ARGV[1], 'run', ARGV[2], 'attempt', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'runs', 1)
return 1
`,
  /** KEYS: tally, findings, key. ARGV: token, run. Returns 1, or 0 if a later attempt has begun. */
  ended: `${SEEN}
if tonumber(ARGV[1]) < tonumber(seen('token')) then return 0 end
redis.call('HSET', key, 'ended:' .. ARGV[2], 1)
return 1
`,
  /** KEYS: tally, findings, key, numbers. ARGV: run, name, number, answers of a key before the next one is used. */
  answered: `${SEEN}
if seen('answer') == '0' then redis.call('HSET', key, 'answer', ARGV[1]) end
if seen('answer') ~= ARGV[1] then note(key .. ': answers of ' .. seen('answer') .. ' and ' .. ARGV[1]) end
if seen('ended:' .. ARGV[1]) == '0' then note(key .. ': the answer of a run that was overtaken') end
redis.call('HINCRBY', KEYS[1], 'answers', 1)
local answers = redis.call('HINCRBY', key, 'answers', 1)
local number = redis.call('HGET', KEYS[4], ARGV[2]) or '0'
if answers >= tonumber(ARGV[4]) and number == ARGV[3] then redis.call('HINCRBY', KEYS[4], ARGV[2], 1) end
`,
  /** KEYS: tally, findings. ARGV: what. */
  note: `${NOTE} note(ARGV[1])`,
};

/** What a caller needs to give evidence. */
export interface EvidenceAddress {
  readonly port: number;
  readonly scripts: Readonly<Record<string, string>>;
}

/** The evidence, and what it shows. */
export class RunEvidence {
  private constructor(
    private readonly client: Redis,
    readonly address: EvidenceAddress,
  ) {}

  static async open(port: number): Promise<RunEvidence> {
    const client = new Redis({ host: '127.0.0.1', port });
    const scripts: Record<string, string> = {};
    for (const [name, script] of Object.entries(SCRIPTS))
      scripts[name] = (await client.script('LOAD', script)) as string;
    return new RunEvidence(client, { port, scripts });
  }

  /** How often each name went on to its next key. */
  async numbers(names: readonly string[]): Promise<string[]> {
    return (await this.client.hmget('numbers', ...names)).map((number) => number ?? '0');
  }

  async note(what: string): Promise<void> {
    await this.client.evalsha(this.address.scripts['note'] as string, 2, 'tally', 'findings', what);
  }

  /** Counts of runs, answers, findings, and errors by their class. */
  async tally(): Promise<Record<string, number>> {
    const tally = await this.client.hgetall('tally');
    return Object.fromEntries(Object.entries(tally).map(([what, count]) => [what, Number(count)]));
  }

  async findings(): Promise<string[]> {
    return this.client.lrange('findings', 0, -1);
  }

  async close(): Promise<void> {
    await this.client.quit();
  }
}
