import { EXCLUSION_RULES } from './exclusion-rules.js';
import { FAULT_RULES } from './fault-rules.js';
import { GRANT_RULES } from './grant-rules.js';
import { NAME_RULES, ROLE_RULES } from './name-rules.js';
import { QUEUE_RULES } from './queue-rules.js';
import { READ_RULES } from './read-rules.js';
import { casesOf, type LockBackendCase, type LockBackendWorld } from './stage.js';
import { TOKEN_RULES } from './token-rules.js';

export type { BackendRole, LockBackendCase, LockBackendWorld, StoreFault, StoreFaults } from './stage.js';
export { RedisLockTestingModule } from './wire.js';
export { testServices, wire, withoutServer, type TestServices } from './wire.js';

/**
 * The rules that every lock backend keeps, as data without a test runner: loop over them in any runner, and report
 * those whose `missing` is not empty as skipped.
 *
 * A role that the world names in `without` is no fault: a case sees that the options which need it are refused.
 */
export function lockBackendCases(world: LockBackendWorld): readonly LockBackendCase[] {
  const rules = [
    ...GRANT_RULES,
    ...TOKEN_RULES,
    ...NAME_RULES,
    ...ROLE_RULES,
    ...READ_RULES,
    ...QUEUE_RULES,
    ...EXCLUSION_RULES,
    ...FAULT_RULES,
  ];
  return casesOf(rules, world);
}
