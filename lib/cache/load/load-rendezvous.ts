/** What takes part in deciding when several reads call their loader together. */
export interface LoadRendezvous {
  /** This read does without the loader. */
  decided(): void;
  /** It waits for another read, of this process or another, and needs the loader if that fails or is outdated. */
  waits(): void;
  /** It has waited, and asks whether it needs the loader now. */
  resumes(): void;
  /** What it found is to be loaded anew in the background, if nobody else does. */
  refreshes(): void;
  /** That has ended, or is left to somebody else. */
  refreshed(): void;
}
