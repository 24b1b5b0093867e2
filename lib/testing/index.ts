export { lockBackendCases } from './lock-backend-cases.js';
export type { LockBackendCase, LockBackendWorld, StoreFault, StoreFaults } from './stage.js';
export { RedisLockTestingModule } from './wire.js';
export { testServices, wire, withoutServer, type TestServices } from './wire.js';
