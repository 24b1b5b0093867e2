import { Controller, Module, UseGuards, type DynamicModule } from '@nestjs/common';
import { lockAdminSettings, type LockAdminOptions } from './admin-options.js';
import { LockAdminRoutes } from './lock-admin-routes.js';

/**
 * Routes for administrators, behind guards of the application: list, inspect and force-release locks, inspect and
 * invalidate cached values. `LockAdminModule.register({ guards: [AdminGuard] })`; needs `RedisLockModule`.
 */
@Module({})
export class LockAdminModule {
  /** @throws LockConfigError for an option that it cannot take, and without a guard */
  static register(options: LockAdminOptions): DynamicModule {
    const { guards, path, imports } = lockAdminSettings(options);

    @Controller(path)
    @UseGuards(...guards)
    class LockAdminController extends LockAdminRoutes {}

    return { module: LockAdminModule, imports, controllers: [LockAdminController] };
  }
}
