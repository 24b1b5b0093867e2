/** How values become bytes and come back. */
export interface CacheSerializer {
  /** Text where it can: clients send it faster than a buffer. */
  serialize(value: unknown): string | Buffer;
  /** @throws for what `serialize` did not make: the value then counts as absent */
  deserialize(data: Buffer): unknown;
}
