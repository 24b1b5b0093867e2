import { Packr } from 'msgpackr/pack';

/** Values as MessagePack. */
export interface Packer {
  pack(value: unknown): Buffer;
  /** What it makes shares no bytes with what it reads. */
  unpack(data: Buffer): unknown;
}

/**
 * The build compiles msgpackr into this file: as a dependency it would bring a native addon, which some installers
 * refuse.
 */
export function packer(): Packer {
  return new Packr({ structuredClone: true, useBigIntExtension: true, copyBuffers: true });
}
