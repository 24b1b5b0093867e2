export type { LockAdminOptions } from './admin-options.js';
export { LockAdminModule } from './lock-admin-routes.js';
