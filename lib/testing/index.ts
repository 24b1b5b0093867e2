export { lockBackendCases } from './conformance/lock-backend-cases.js';
export type { LockBackendCase, LockBackendWorld, StoreFault, StoreFaults } from './conformance/world.js';
export { RedisLockTestingModule } from './redis-lock-testing.module.js';
export { testServices, wire, type TestServices } from './wire.js';
