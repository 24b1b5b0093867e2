import type { ModuleContext } from 'nest-redis-lock/backend';
import { lockBackendCases, type LockBackendWorld } from 'nest-redis-lock/testing';
import type { OpenBackend, Replacements } from '../support/open-backend.js';

/** What every backend guarantees, each with a case that fails where a store lies about it. */
export const GUARANTEES = [
  'loss',
  'tokens',
  'lease',
  'claim',
  'waiting',
  'session',
  'refusal',
  'answers',
  'batch',
  'identity',
  'connection',
  'roles',
] as const;

export type Guarantee = (typeof GUARANTEES)[number];

/** What a wrong backend does in place of an honest one. */
export type Lies = (honest: OpenBackend) => Replacements;

/** What its modules hear of what the honest one tells. */
export type Heard = (module: ModuleContext) => ModuleContext;

/** A backend that is wrong in one point, the case that fails on it, and what the failure says. */
export interface Wrong {
  readonly guarantee: Guarantee;
  readonly what: string;
  readonly world: () => LockBackendWorld;
  readonly fails: string;
  readonly saying: RegExp;
  /** One that passes the case. */
  readonly honest: () => LockBackendWorld;
}

/** Each wrong backend fails its case, and an honest one passes it. */
export function failTheirCases(wrong: readonly Wrong[]): void {
  it.concurrent.each(wrong)('a backend fails a case that $what', async ({ world, fails, saying }) => {
    await expect(runOf(world(), fails)()).rejects.toThrow(saying);
  });

  const right = new Map(wrong.map(({ fails, honest }) => [fails, honest]));
  it.concurrent.each([...right])('an honest backend passes: %s', async (passes, honest) => runOf(honest(), passes)());
}

function runOf(world: LockBackendWorld, name: string): () => Promise<void> {
  const found = lockBackendCases(world).find((each) => each.name === name);
  if (!found) throw new Error(`there is no case "${name}"`);
  expect(found.missing).toEqual([]);
  return found.run;
}
