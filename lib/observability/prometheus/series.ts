/** The numbers of one template: what was counted, and in other fields what is the case now. */
export abstract class Series<Counts> {
  counts: Counts;

  constructor(private readonly zero: () => Counts) {
    this.counts = zero();
  }

  /** Forgets what was counted, and keeps what is the case now. */
  reset(): void {
    this.counts = this.zero();
  }
}

/** A count for each of the names, such as the reasons of a failure. */
export function zeros<Name extends string>(...names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>;
}
