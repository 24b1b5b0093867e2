/**
 * With these a server refuses what it will take soon: it loads its data, or a slot of a Cluster is moved or has no
 * master.
 */
const FOR_NOW = /^(TRYAGAIN|ASK|MOVED|CLUSTERDOWN|MASTERDOWN|LOADING) /;
const PAUSE = 50;
/** As long as a command takes at most, unless the user says otherwise. */
const LONGEST = 1_000;

/** Sends a command again while the server refuses it for now. A client of a Cluster does that, too, and less often. */
export class RefusedForNow {
  private until = 0;

  constructor(
    private readonly send: (failed: (error: unknown) => void) => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  static is(error: unknown): boolean {
    return error instanceof Error && FOR_NOW.test(error.message);
  }

  readonly again = (error: unknown): void => {
    const now = performance.now();
    this.until ||= now + LONGEST;
    if (now >= this.until || !RefusedForNow.is(error)) return this.failed(error);
    setTimeout(() => this.send(this.again), PAUSE).unref();
  };
}
