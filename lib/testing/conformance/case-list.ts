import { Stage } from './stage.js';
import type { LockBackendCase, LockBackendWorld, StoreFault, StoreFaults } from './world.js';

/** A rule, before it is applied to a world. */
export interface Rule {
  readonly name: string;
  readonly needs: readonly StoreFault[];
  readonly body: (stage: Stage, faults: StoreFaults) => Promise<void>;
}

export function rule(name: string, body: (stage: Stage) => Promise<void>): Rule {
  return { name, needs: [], body };
}

/** A rule that is seen only under faults: `body` uses no others than those of `needs`. */
export function ruleUnder<F extends StoreFault>(
  needs: readonly F[],
  name: string,
  body: (stage: Stage, faults: Pick<StoreFaults, F>) => Promise<void>,
): Rule {
  return { name, needs, body };
}

export function casesOf(rules: readonly Rule[], world: LockBackendWorld): readonly LockBackendCase[] {
  const { faults = {} } = world;
  return rules.map(({ name, needs, body }) => {
    const missing = needs.filter((need) => faults[need] === undefined);
    const run = async (): Promise<void> => {
      if (missing.length > 0) throw new Error(`The world cannot ${missing.join(', ')}: skip the case "${name}"`);
      const stage = new Stage(world);
      try {
        await body(stage, faults as StoreFaults);
      } finally {
        await stage.end();
      }
    };
    return { name, needs, missing, run };
  });
}
