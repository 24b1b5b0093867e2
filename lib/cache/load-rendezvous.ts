/** What takes part in deciding when several reads call their loader together. */
export interface LoadRendezvous {
  /** This read does without the loader for now: it has found a value, or waits for another process. */
  decided(): void;
}
