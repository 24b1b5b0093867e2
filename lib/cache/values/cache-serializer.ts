/** How values become bytes and come back. */
export interface CacheSerializer {
  /**
   * Stands beside every value: what one of another name has stored counts as absent, so that two versions of an
   * application may run at once. Give it another one when `deserialize` cannot read any more what it used to.
   * @default a digest of the text of both functions
   */
  readonly name?: string;
  /** Text where it can: clients send it faster than a buffer. */
  serialize(value: unknown): string | Buffer;
  /** @throws for what `serialize` did not make: the value then counts as absent */
  deserialize(data: Buffer): unknown;
}
