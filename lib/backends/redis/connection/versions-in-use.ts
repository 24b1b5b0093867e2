import type { Notice } from '../../../contracts/store.js';
import { serverOf } from './connection-options.js';
import { isOpen } from './redis-client.js';
import { EARLIEST_VERSION, PROTOCOL_VERSION, redisScript } from './redis-script.js';
import type { ScriptRunner } from './script-runner.js';

/** How often (ms) a process notes its version. */
const PERIOD = 60 * 1_000;
/** How long (ms) a note lasts: a process may miss two. */
const DURATION = 3 * PERIOD + 5_000;

/**
 * Keeps a note at Redis of the protocol version that this process speaks, and warns once of each other version in use
 * that it cannot work beside. Nothing waits for a note, and no lock or value depends on it.
 */
export class VersionsInUse {
  /** By key: what the processes share there, in words for the log. */
  private readonly shared = new Map<string, string>();
  private readonly reported = new Set<string>();
  private timer: NodeJS.Timeout | undefined;
  private closed = false;

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly report: (notice: Notice) => void,
    private readonly ours = OURS,
  ) {}

  /** Notes the version under `key`, now and once a minute. Resolves with the first note, or when Redis has failed. */
  async note(key: string, shared: string): Promise<void> {
    if (this.closed) return;
    this.shared.set(key, shared);
    this.timer ??= setInterval(() => this.noteAll(), PERIOD).unref();
    await this.write(key, shared);
  }

  close(): void {
    this.closed = true;
    clearInterval(this.timer);
  }

  private noteAll(): void {
    // Without a connection, the client would queue the notes.
    if (!isOpen(this.scripts.client)) return;
    for (const [key, shared] of this.shared) void this.write(key, shared);
  }

  private async write(key: string, shared: string): Promise<void> {
    const { version, earliest } = this.ours;
    let reply: readonly unknown[];
    try {
      reply = (await this.scripts.run(NOTE_VERSION, [key], [version, earliest, DURATION])) as unknown[];
    } catch {
      // The next attempt follows a minute later.
      return;
    }
    for (let index = 0; index < reply.length; index += 2) {
      const other = { version: Number(reply[index]), earliest: Number(reply[index + 1]) };
      if (other.version < earliest || other.earliest > version) this.warn(key, shared, other.version);
    }
  }

  private warn(key: string, shared: string, other: number): void {
    const what = `${key} ${other}`;
    if (this.closed || this.reported.has(what)) return;
    this.reported.add(what);
    const { version } = this.ours;
    const message =
      `${serverOf(this.scripts.client)}: processes with protocol ${other} use the same ${shared} as this one with ` +
      `protocol ${version}, and the two do not work together: see "Rolling updates" in the documentation; ` +
      'stop the processes of one version, or give them another "prefix"';
    this.report({ level: 'warn', message });
  }
}

/** A protocol version, with the earliest one that its processes can work beside. */
interface ProtocolVersion {
  readonly version: number;
  readonly earliest: number;
}

const OURS: ProtocolVersion = { version: PROTOCOL_VERSION, earliest: EARLIEST_VERSION };

/**
 * Notes that processes of a protocol version use these keys, and returns the other versions in use.
 *
 * The versions are one string: `<version>=<earliest version it works with>@<until>`, separated by spaces. `until` is
 * when (ms of Redis TIME) the note of a version ends, unless one of its processes writes it again.
 *
 * KEYS: 1 the versions. ARGV: 1 version, 2 earliest version it works with, 3 how long the note lasts in ms.
 * Returns {version, earliest version it works with, ...} of the others.
 */
const NOTE_VERSION = redisScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = now + ARGV[3]
local notes, others = {string.format('%s=%s@%.0f', ARGV[1], ARGV[2], last)}, {}
local known = redis.call('GET', KEYS[1]) or ''
for version, earliest, ends in string.gmatch(known, '(%d+)=(%d+)@(%d+)') do
  if version ~= ARGV[1] and tonumber(ends) > now then
    notes[#notes + 1] = version .. '=' .. earliest .. '@' .. ends
    last = math.max(last, tonumber(ends))
    others[#others + 1] = version
    others[#others + 1] = earliest
  end
end
redis.call('SET', KEYS[1], table.concat(notes, ' '), 'PX', string.format('%.0f', last - now))
return others
`);
