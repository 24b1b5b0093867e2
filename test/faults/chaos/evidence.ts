import { Redis } from 'ioredis';

/**
 * What was seen of the holders, on a Redis server of its own that no mischief touches. For each name a hash:
 *
 * - `highest`, the highest fencing token seen, and `holder`, who showed it;
 * - `counter`, which every holder reads at its beginning and writes back with one more at its end;
 * - `accepted`, how many of these writes were accepted, and `last`, the token of the last.
 *
 * - `reads`, the highest token that a reader has shown, and `looked`, how many have read to their end.
 *
 * Both steps refuse a token below the highest seen, or no higher than that of a reader; those of a reader refuse a
 * token below that of a holder which writes. A holder that was stopped for longer than its lease is refused with good
 * reason; one that still trusts its lease is proof that two held the lock at once, which only the holder itself can
 * tell (see contender.mjs).
 */
const TALLY = 'tally';
const FINDINGS = 'findings';
const FINDINGS_KEPT = 50;

/** Says what must not be. KEYS: 1 tally, 2 findings. ARGV: 1 what. */
const NOTE = `
local note = function(what)
  if redis.call('HINCRBY', tally, 'findings', 1) <= ${FINDINGS_KEPT} then redis.call('RPUSH', findings, what) end
end
`;

const STEP = `
local tally, findings, name, holder = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
${NOTE}
local seen = function(field) return redis.call('HGET', name, field) or '0' end
local token, highest = tonumber(ARGV[1]), tonumber(seen('highest'))
local who = name .. ', token ' .. ARGV[1] .. ': '
if token < highest then return {0, seen('highest')} end
if token <= tonumber(seen('reads')) then return {0, seen('reads') .. ' of a reader'} end
if token == highest and seen('holder') ~= holder then
  note(who .. 'two holders, ' .. seen('holder') .. ' and ' .. holder)
end
`;

const SCRIPTS = {
  /**
   * KEYS: 1 tally, 2 findings, 3 name. ARGV: 1 token, 2 holder, 3 how long it waited (ms).
   * Returns {1, counter}, or {0, highest token} when the token is refused.
   */
  read: `${STEP}
redis.call('HSET', name, 'highest', ARGV[1], 'holder', holder)
local longest = tonumber(redis.call('HGET', tally, 'longestWait') or '0')
redis.call('HSET', tally, 'longestWait', math.max(longest, tonumber(ARGV[3])))
return {1, seen('counter')}
`,
  /**
   * KEYS: 1 tally, 2 findings, 3 name. ARGV: 1 token, 2 holder, 3 counter to be written.
   * Returns {1, counter}, or {0, highest token} when the token is refused.
   */
  write: `${STEP}
if token > highest then note(who .. 'written without having read') end
if token <= tonumber(seen('last')) then note(who .. 'accepted after ' .. seen('last')) end
redis.call('HSET', name, 'counter', ARGV[3], 'last', ARGV[1])
redis.call('HINCRBY', name, 'accepted', 1)
return {1, ARGV[3]}
`,
  /**
   * A reader looks at the counter. KEYS: 1 tally, 2 findings, 3 name. ARGV: 1 token, 2 holder, 3 the counter that it
   * saw at its beginning, empty when it begins.
   * Returns {1, counter}, or {0, highest token} when the token is refused.
   */
  look: `
local tally, findings, name = KEYS[1], KEYS[2], KEYS[3]
${NOTE}
local seen = function(field) return redis.call('HGET', name, field) or '0' end
local token, counter = tonumber(ARGV[1]), seen('counter')
if token < tonumber(seen('highest')) then return {0, seen('highest')} end
if token > tonumber(seen('reads')) then redis.call('HSET', name, 'reads', ARGV[1]) end
if ARGV[3] ~= '' then
  redis.call('HINCRBY', tally, 'reads', 1)
  redis.call('HINCRBY', name, 'looked', 1)
  if ARGV[3] ~= counter then
    note(name .. ', token ' .. ARGV[1] .. ': ' .. ARGV[2] .. ' read ' .. ARGV[3] .. ' and then ' .. counter)
  end
end
return {1, counter}
`,
  /** KEYS: 1 tally, 2 findings. ARGV: 1 what. */
  note: `
local tally, findings = KEYS[1], KEYS[2]
${NOTE}
note(ARGV[1])
`,
};

export type EvidenceScript = keyof typeof SCRIPTS;

/** What a child needs to give evidence. */
export interface EvidenceAddress {
  readonly port: number;
  readonly scripts: Record<EvidenceScript, string>;
  readonly tally: string;
  readonly findings: string;
}

export interface Tally {
  /** Holds that ended with a write, or read to their end. */
  readonly cycles: number;
  /** Those that read. */
  readonly reads: number;
  /** Steps of holders that came too late, and were refused. */
  readonly fencedOff: number;
  /** Holders that learned of their loss. */
  readonly lost: number;
  /** In ms. */
  readonly longestWait: number;
  readonly findingsInAll: number;
}

export class Evidence {
  private constructor(
    private readonly client: Redis,
    private readonly names: readonly string[],
    readonly address: EvidenceAddress,
  ) {}

  static async open(port: number, names: readonly string[]): Promise<Evidence> {
    const client = new Redis({ host: '127.0.0.1', port });
    const load = async (script: EvidenceScript) => (await client.script('LOAD', SCRIPTS[script])) as string;
    const [read, write, look, note] = await Promise.all([load('read'), load('write'), load('look'), load('note')]);
    const scripts = { read, write, look, note };
    return new Evidence(client, names, { port, scripts, tally: TALLY, findings: FINDINGS });
  }

  /** How many writes of each name were accepted. */
  async accepted(): Promise<number[]> {
    return Promise.all(this.names.map(async (name) => Number(await this.client.hget(name, 'accepted'))));
  }

  /** How many holds of each name came to their end. */
  async ended(): Promise<number[]> {
    const counts = await Promise.all(this.names.map((name) => this.client.hmget(name, 'accepted', 'looked')));
    return counts.map(([accepted, looked]) => Number(accepted) + Number(looked));
  }

  /** For each name who has read and not yet written, `<process>-<hold>`. It may hold the lock, or have died. */
  async holders(): Promise<(string | undefined)[]> {
    const states = await Promise.all(this.names.map((name) => this.client.hgetall(name)));
    return states.map(({ holder, highest, last }) => (highest === last ? undefined : holder));
  }

  async note(what: string): Promise<void> {
    await this.client.evalsha(this.address.scripts.note, 2, TALLY, FINDINGS, what);
  }

  async tally(): Promise<Tally> {
    const tally = await this.client.hgetall(TALLY);
    const reads = Number(tally['reads'] ?? 0);
    return {
      cycles: (await this.accepted()).reduce((sum, each) => sum + each, reads),
      reads,
      fencedOff: Number(tally['fencedOff'] ?? 0),
      lost: Number(tally['lost'] ?? 0),
      longestWait: Number(tally['longestWait'] ?? 0),
      findingsInAll: Number(tally['findings'] ?? 0),
    };
  }

  /** What must not be, the first of it. */
  async findings(): Promise<string[]> {
    return this.client.lrange(FINDINGS, 0, -1);
  }

  /** A write that overwrote another leaves the counter behind. */
  async noteLostUpdates(): Promise<void> {
    for (const name of this.names) {
      const { counter = '0', accepted = '0' } = await this.client.hgetall(name);
      if (counter !== accepted) await this.note(`${name}: ${accepted} writes made the counter ${counter}`);
    }
  }

  async close(): Promise<void> {
    await this.client.quit();
  }
}
