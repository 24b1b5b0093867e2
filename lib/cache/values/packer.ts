import { Packr } from 'msgpackr/pack';

/** Packs values as MessagePack. */
export interface Packer {
  pack(value: unknown): Buffer;
  /** The value shares no bytes with `data`. */
  unpack(data: Buffer): unknown;
}

/**
 * The build puts msgpackr into the package: as a dependency it would install a native addon, which some installers
 * refuse.
 */
export function packer(): Packer {
  return new Packr({ structuredClone: true, useBigIntExtension: true, copyBuffers: true });
}
