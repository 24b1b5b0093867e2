/** Turns values into bytes and back. */
export interface CacheSerializer {
  /**
   * Stored with every value. A value that a serializer with another name stored counts as absent, so that two versions
   * of an application can run at once: change the name when `deserialize` can no longer read older values.
   * @default a digest of the text of both functions
   */
  readonly name?: string;
  /** Return text where possible: clients send it faster than a buffer. */
  serialize(value: unknown): string | Buffer;
  /** @throws for data that `serialize` did not make: the value then counts as absent */
  deserialize(data: Buffer): unknown;
}
