/** What a read reports to the batch load that it takes part in. */
export interface BatchParticipant {
  /** Called when the read does not need the loader. */
  decided(): void;
  /**
   * Called when it waits for another read, in this process or another. It needs the loader if that one fails or is
   * outdated.
   */
  waits(): void;
  /** Called when it has waited and now finds out whether it needs the loader. */
  resumes(): void;
  /** Called when it refreshes its value in the background, unless another process does. */
  refreshes(): void;
  /** Called when the refresh has ended. */
  refreshed(): void;
}
