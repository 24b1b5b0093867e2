import type { Notice } from '../../../contracts/start-request.js';
import { serverOf } from '../connection/server-address.js';
import { EARLIEST_VERSION, PROTOCOL_VERSION } from '../scripting/protocol-version.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import { NOTE_VERSION } from './note-version.lua.js';

/** How often (ms) a process notes its version. */
const PERIOD = 60 * 1_000;
/** How long (ms) a note lasts: a process may miss two. */
const DURATION = 3 * PERIOD + 5_000;

/** A protocol version, with the earliest one that its processes can work beside. */
export interface ProtocolVersion {
  readonly version: number;
  readonly earliest: number;
}

const OURS: ProtocolVersion = { version: PROTOCOL_VERSION, earliest: EARLIEST_VERSION };

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
    if (this.scripts.client.status !== 'ready') return;
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
