import {
  BadRequestException,
  Delete,
  Get,
  Header,
  Inject,
  NotFoundException,
  Query,
  Controller,
  Module,
  UseGuards,
  type DynamicModule,
} from '@nestjs/common';
import { CacheService } from '../cache/cache.service.js';
import type { CacheKeyInfo } from '../cache/operations.js';
import { CacheConfigError, CacheKeyError } from '../errors/cache-errors.js';
import { LockConfigError, LockKeyError } from '../errors/lock-errors.js';
import { LockService } from '../lock/lock.service.js';
import { AdminQuery, lockAdminSettings, type GivenQuery, type LockAdminOptions } from './admin-options.js';
import { endless, fieldsOf, type LockFields } from './lock-fields.js';

/** What the options or the key of a request got wrong. */
const OF_THE_REQUEST = [LockConfigError, LockKeyError, CacheConfigError, CacheKeyError];

/** The routes, without their path and their guards. Names and keys are in the query, because they may have slashes. */
export class LockAdminRoutes {
  constructor(
    @Inject(LockService) private readonly locks: LockService,
    @Inject(CacheService) private readonly cache: CacheService,
  ) {}

  @Get()
  @Header('Cache-Control', 'no-store')
  list(@Query() given: GivenQuery): Promise<{ locks: LockFields[]; cursor: string | null }> {
    return answering(async () => {
      const query = new AdminQuery(given, ['pattern', 'cursor', 'limit', 'backend']);
      const limit = query.wholeNumber('limit');
      const page = await this.locks.list(query.text('pattern'), {
        ...query.texts('cursor', 'backend'),
        ...(limit !== undefined && { limit }),
      });
      return { locks: page.locks.map(fieldsOf), cursor: page.cursor ?? null };
    });
  }

  @Get('lock')
  @Header('Cache-Control', 'no-store')
  inspect(@Query() given: GivenQuery): Promise<LockFields> {
    return answering(async () => {
      const query = new AdminQuery(given, ['name', 'backend']);
      const name = query.required('name');
      const info = await this.locks.inspect(name, query.texts('backend'));
      if (!info) throw new NotFoundException(`Nobody holds "${name}"`);
      return fieldsOf({ key: name, ...info });
    });
  }

  @Delete('lock')
  release(@Query() given: GivenQuery): Promise<{ released: true; from: LockFields | null }> {
    return answering(async () => {
      const query = new AdminQuery(given, ['name', 'backend']);
      const name = query.required('name');
      const options = query.texts('backend');
      const info = await this.locks.inspect(name, options);
      if (!(await this.locks.forceRelease(name, options))) throw new NotFoundException(`Nobody holds "${name}"`);
      return { released: true, from: info && fieldsOf({ key: name, ...info }) };
    });
  }

  @Get('cache')
  @Header('Cache-Control', 'no-store')
  inspectCache(@Query() given: GivenQuery): Promise<object> {
    return answering(async () => {
      const key = new AdminQuery(given, ['key']).required('key');
      const info = await this.cache.inspect(key);
      if (!info) throw new NotFoundException(`Nothing is stored under "${key}"`);
      return { key, ...cacheFields(info) };
    });
  }

  @Delete('cache')
  invalidate(@Query() given: GivenQuery): Promise<{ key?: string; found?: boolean; tag?: string }> {
    return answering(async () => {
      const query = new AdminQuery(given, ['key', 'tag']);
      const { key, tag } = query.texts('key', 'tag');
      if ((key === undefined) === (tag === undefined)) throw new BadRequestException('Give either "key" or "tag"');
      if (tag !== undefined) {
        await this.cache.deleteByTag(tag, { onRedisError: 'throw' });
        return { tag };
      }
      const found = (await this.cache.del(key as string, { onRedisError: 'throw' })) > 0;
      return { key: key as string, found };
    });
  }
}

function cacheFields(info: CacheKeyInfo): object {
  return { ...info, freshFor: endless(info.freshFor), keptFor: endless(info.keptFor) };
}

/** Turns what is wrong with a request into an answer of status 400. */
async function answering<T>(body: () => Promise<T>): Promise<T> {
  try {
    return await body();
  } catch (error) {
    const wrong = OF_THE_REQUEST.some((each) => error instanceof each);
    throw wrong ? new BadRequestException((error as Error).message) : error;
  }
}

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
