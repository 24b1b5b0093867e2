import 'reflect-metadata';
import type { AddressInfo } from 'node:net';
import { Inject, type DynamicModule, type INestApplication, type Provider, type Type } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import { LockService } from 'nest-redis-lock';
import { RedisLockTestingModule } from 'nest-redis-lock/testing';
import { RecordingLogger } from './recording-logger.js';

/** What each method held when its body ran. */
export const ran = new Map<string, readonly string[]>();

export abstract class Witness {
  constructor(@Inject(LockService) protected readonly locks: LockService) {}

  protected witness(method: string): string {
    const keys = this.locks.current()?.keys ?? [];
    ran.set(method, keys);
    return keys.join();
  }
}

interface Parts {
  readonly imports?: readonly (DynamicModule | Type)[];
  readonly providers?: readonly Provider[];
  readonly controllers?: readonly Type[];
  readonly adapter?: ExpressAdapter | FastifyAdapter;
  readonly prepare?: (app: INestApplication) => unknown;
}

export interface Started extends AsyncDisposable {
  readonly app: INestApplication;
  readonly locks: LockService;
  readonly logger: RecordingLogger;
  readonly url: string;
}

export async function start({
  imports = [],
  providers = [],
  controllers = [],
  adapter,
  prepare,
}: Parts): Promise<Started> {
  const logger = new RecordingLogger();
  const module = await Test.createTestingModule({
    imports: [RedisLockTestingModule.forRoot({ defaults: { wait: 0 } }), ...imports],
    providers: [...providers],
    controllers: [...controllers],
  }).compile();
  const app = module.createNestApplication(adapter ?? new ExpressAdapter(), { logger, forceCloseConnections: true });
  await prepare?.(app);
  await app.listen(0, '127.0.0.1');
  const { port } = (app.getHttpServer() as { address(): AddressInfo }).address();
  const url = `http://127.0.0.1:${port}`;
  return { app, locks: app.get(LockService), logger, url, [Symbol.asyncDispose]: () => app.close() };
}

/** Forgets what earlier tests ran. */
export function clearRuns(): void {
  beforeEach(() => ran.clear());
}
