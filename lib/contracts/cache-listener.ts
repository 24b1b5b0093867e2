/** Receives the messages of all processes, this one included. */
export interface CacheListener {
  /** The value of the key may have changed. */
  onInvalidated(key: string): void;
  /** The load that `busy` reported has ended, with or without a value. */
  onLoadEnded(key: string): void;
  /** Values with this tag may have changed. */
  onTagInvalidated(tag: string): void;
  /** Values under keys with this prefix may have changed; '' stands for all keys. */
  onPrefixInvalidated(prefix: string): void;
  /** Scheduled deletions are due in `delay` ms. */
  onDeletionScheduled(delay: number): void;
  /** Messages may be lost from now on. */
  onDisconnected(): void;
  /** Messages arrive from now on; some may have been lost before. */
  onConnected(): void;
}

/** Receives the changes that the store itself reports, also those by clients that do not use this library. */
export interface CacheTracker {
  /** The value of the key was changed, has expired or was evicted. */
  onChanged(key: string): void;
  /** Any value may have changed. */
  onAllChanged(): void;
  /** The store reports every change from now on; some may have been missed before. */
  onTracked(): void;
  /** Changes may be missed from now on. `why`: the error with which the store refused to report them. */
  onUntracked(why?: Error): void;
}
