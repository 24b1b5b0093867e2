import { Redis } from 'ioredis';

const FINDINGS_KEPT = 50;

/**
 * What every script of the evidence begins with. KEYS: 1 tally, 2 findings, 3 cycles of each name, 4 the hash of what
 * was seen of one name or key.
 *
 * `fenced()` is what a protected resource does: it refuses a holder with a token below the highest seen. ARGV: 1 the
 * token, 2 the holder. Only the holder itself can tell whether that was for a good reason: it was not if the holder
 * still trusted its hold afterwards.
 */
const COMMON = `
local tally, findings, cycles, key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local function note(what)
  if redis.call('HINCRBY', tally, 'findings', 1) <= ${FINDINGS_KEPT} then redis.call('RPUSH', findings, what) end
end
local function count(what) return redis.call('HINCRBY', tally, what, 1) end
local function cycled(name) return redis.call('HINCRBY', cycles, name, 1) end
local function seen(field) return redis.call('HGET', key, field) or '0' end
local function fenced()
  local token, highest = tonumber(ARGV[1]), tonumber(seen('token'))
  if token < highest then return false end
  if token == highest and seen('holder') ~= ARGV[2] then
    note(key .. ', token ' .. ARGV[1] .. ': two holders, ' .. seen('holder') .. ' and ' .. ARGV[2])
  end
  redis.call('HSET', key, 'token', ARGV[1], 'holder', ARGV[2])
  return true
end
`;

/** Scripts of all evidence. */
const SHARED = {
  /** ARGV: what. */
  note: 'note(ARGV[1])',
  /** ARGV: token, holder. Returns 1, or 0 if a later holder has begun. */
  look: 'return fenced() and 1 or 0',
};

/** Lua texts by their names; they may use the functions of `COMMON`. */
export type EvidenceScripts = Readonly<Record<string, string>>;

/** What a process needs to give evidence. */
export interface EvidenceAddress {
  readonly port: number;
  readonly scripts: Readonly<Record<string, string>>;
}

/** What processes have shown of their holds, on a Redis server of its own that no fault touches. */
export class Evidence {
  private constructor(
    private readonly client: Redis,
    readonly address: EvidenceAddress,
  ) {}

  static async open(port: number, scripts: EvidenceScripts): Promise<Evidence> {
    const client = new Redis({ host: '127.0.0.1', port });
    const loaded: Record<string, string> = {};
    for (const [name, script] of Object.entries({ ...SHARED, ...scripts })) {
      loaded[name] = (await client.script('LOAD', COMMON + script)) as string;
    }
    return new Evidence(client, { port, scripts: loaded });
  }

  async note(what: string): Promise<void> {
    await this.client.evalsha(this.address.scripts['note'] as string, 3, 'tally', 'findings', 'cycles', what);
  }

  /** How many cycles of each name came to their end. */
  async cycles(names: readonly string[]): Promise<number[]> {
    return (await this.client.hmget('cycles', ...names)).map(Number);
  }

  /** Counts of findings, of errors by their code, and of what else the processes count. */
  async tally(): Promise<Record<string, number>> {
    const tally = await this.client.hgetall('tally');
    return Object.fromEntries(Object.entries(tally).map(([what, count]) => [what, Number(count)]));
  }

  /** What must not be, the first of it. */
  async findings(): Promise<string[]> {
    return this.client.lrange('findings', 0, -1);
  }

  async close(): Promise<void> {
    await this.client.quit();
  }
}
