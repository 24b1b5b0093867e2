/** A harmless command; a number stands for the key at that position, counted from 1. */
export type Probe = readonly [command: string, ...args: (string | number)[]];

/** The rights that a part of the library needs from an ACL user. */
export interface Rights {
  /** As in "rights needed for locks". */
  readonly whose: string;
  /** Whether Redis may evict it under memory pressure without breaking a promise. */
  readonly evictable: boolean;
  readonly keyPatterns: readonly string[];
  /** Absent where no messages are sent. */
  readonly messages?: {
    readonly channelPattern: string;
    /** A channel without subscribers. */
    readonly channel: string;
  };
  readonly probes: readonly Probe[];
  /** Keys for one run of the probes, all in one Cluster slot; new ones with each call. */
  keys(): readonly string[];
}
