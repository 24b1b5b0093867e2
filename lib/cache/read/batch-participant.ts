/** What a read reports to the batch load that it takes part in. */
export interface BatchParticipant {
  /** The read does not need the loader. */
  decided(): void;
  /** It waits for another read, of this process or another, and needs the loader if that fails or is outdated. */
  waits(): void;
  /** It has waited, and finds out now whether it needs the loader. */
  resumes(): void;
  /** It refreshes its value in the background, unless another process does. */
  refreshes(): void;
  /** The refresh has ended. */
  refreshed(): void;
}
