/** The store of the locks, and the mischief that only this kind of store knows. */
export interface Store extends AsyncDisposable {
  /** Of its servers; a contender gets them in this order, some behind proxies. */
  readonly ports: readonly number[];
  /** Text of the requests of locks: a proxy breaks the connection at the next one. */
  readonly request: string;
  /** How long (ms) the store keeps a name, or a place in the queue, whose process is gone, at most. */
  readonly lease: number;
  /**
   * Whether a lock ends at once when its connection breaks, before its holder can know: a refused write proves no
   * violation then, and the holder must learn of the loss soon after.
   */
  readonly abrupt?: boolean;
  /** What can be done to the store, by name. */
  readonly faults: Readonly<Record<string, () => Promise<unknown>>>;
  /** What is left of locks and queues. */
  leftovers(): Promise<readonly string[]>;
  /** What would stay for ever. */
  endless(): Promise<readonly string[]>;
}

export const BACKENDS = [
  'redis',
  'redlock',
  'postgres',
  'postgres-advisory',
  'mysql',
  'mysql-get-lock',
  'etcd',
  'zookeeper',
] as const;
export type Backend = (typeof BACKENDS)[number];
