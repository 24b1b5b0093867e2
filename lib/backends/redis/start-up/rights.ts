/** A command that does no harm; a number stands for the key of that place, counted from 1. */
export type Probe = readonly [command: string, ...args: (string | number)[]];

/** What a part of the library needs of an ACL user. */
export interface Rights {
  /** As in "rights needed for locks". */
  readonly whose: string;
  /** Whether Redis may evict it under memory pressure without breaking a promise. */
  readonly evictable: boolean;
  readonly keyPatterns: readonly string[];
  readonly channelPattern: string;
  /** A channel without subscribers. */
  readonly channel: string;
  readonly probes: readonly Probe[];
  /** Keys for one run of the probes, all of one Cluster slot; new ones with each call. */
  keys(): readonly string[];
}
