// One rule broken at a time. Each edit names a text that is once in its file: where it is gone, the command fails.

import type { Kind, Swarm } from '../swarm.js';
import type { StoreName } from '../stores/index.js';

export interface Mutation {
  /** Begins with the rule of docs/protocol.md, or the guarantee, that it breaks. */
  readonly name: string;
  readonly edits: readonly Edit[];
  /** Why no schedule finds it: what else holds. */
  readonly covered?: string;
  /** What the callers of its schedules call; otherwise what each seed says. */
  readonly kind?: Kind;
  /** Which faults and habits its schedules have in any case; otherwise what each seed says. */
  readonly swarm?: Partial<Swarm>;
  /** Where the locks are kept; otherwise at a Redis. */
  readonly store?: StoreName;
}

interface Edit {
  /** Below `lib`. */
  readonly file: string;
  readonly text: string;
  readonly becomes: string;
}

export function one(name: string, file: string, text: string, becomes: string, covered?: string): Mutation {
  return { name, edits: [{ file, text, becomes }], ...(covered !== undefined && { covered }) };
}

/** Mutations that are looked for in schedules of this kind. */
export function of(kind: Kind, mutations: readonly Mutation[]): readonly Mutation[] {
  return mutations.map((mutation) => ({ kind, ...mutation }));
}

/** A mutation that shows under these faults and habits. */
export function given(swarm: Partial<Swarm>, mutation: Mutation): Mutation {
  return { ...mutation, swarm };
}
