/**
 * What a server answers to a command that it can carry out soon: it is still loading its data, or a slot of a Cluster
 * is being migrated or has no master. A Cluster client repeats such commands a few times itself and then fails with the
 * last answer.
 */
const FOR_NOW =
  /^(Too many Cluster redirections\. Last error: \w+: )?(TRYAGAIN|ASK|MOVED|CLUSTERDOWN|MASTERDOWN|LOADING) /;
/** Milliseconds between two sends. */
const PAUSE = 50;
/** How long (ms) a command is repeated: the default of `commandTimeout`. */
const LONGEST = 1_000;

/** Repeats a command while the server refuses it for now. */
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
