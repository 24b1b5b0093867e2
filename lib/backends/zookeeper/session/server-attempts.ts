/** The shortest time (ms) in which a server must answer. */
const LEAST = 100;
/** In the end, each server has at least this long (ms). */
const LONGEST = 1_000;

/**
 * Limits how long each server may take to answer a new connection. One round through all servers fits into the wait of
 * a request, and into the third of a session that is left when its server has fallen silent, so that the silent ones
 * among them do not hide one that works. Each round in which all were silent makes the next twice as long: all of them
 * may be slow.
 */
export class ServerAttempts {
  /** Whether the server has yet to answer on the connection that is open, or about to be. */
  underWay = true;
  /** How many attempts have used up their time since a server has answered. A refusal at once tells of no slow one. */
  private failed = 0;
  private startedAt = performance.now();

  /** @param patience how long (ms) a request waits for a connection */
  constructor(
    private readonly servers: number,
    private readonly patience: number,
  ) {}

  /** When (monotonic, ms) the next server is tried. */
  endsAt(sessionTimeout: number): number {
    const third = sessionTimeout / 3;
    const first = Math.max(LEAST, Math.min(this.patience, third) / this.servers);
    const rounds = Math.floor(this.failed / this.servers);
    return this.startedAt + Math.min(first * 2 ** rounds, Math.max(LONGEST, third));
  }

  /** The connection has ended; the client connects to the next server. */
  next(sessionTimeout: number): void {
    if (this.underWay && performance.now() >= this.endsAt(sessionTimeout)) this.failed += 1;
    this.underWay = true;
    this.startedAt = performance.now();
  }

  answered(): void {
    this.underWay = false;
    this.failed = 0;
  }
}
