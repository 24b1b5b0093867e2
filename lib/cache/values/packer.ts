import { addExtension, Packr } from 'msgpackr/pack';

/** Packs values as MessagePack. */
interface Packer {
  pack(value: unknown): Buffer;
  /** The value shares no bytes with `data`. */
  unpack(data: Buffer): unknown;
}

/** What msgpackr would write as an `Error`, whose constructor takes the message first. */
addExtension({
  Class: AggregateError,
  // A letter, as the types of msgpackr itself, which has no "A".
  type: 0x41,
  write: ({ errors, message, cause }: AggregateError) =>
    cause === undefined ? [errors, message] : [errors, message, { cause }],
  read: ([errors, message, options]: [errors: unknown[], message: string, options?: ErrorOptions]) =>
    new AggregateError(errors, message, options),
});

/**
 * The build puts msgpackr into the package: as a dependency it would install a native addon, which some installers
 * refuse.
 */
export function packer(): Packer {
  return new Packr({ structuredClone: true, useBigIntExtension: true, copyBuffers: true });
}
