import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { LockBackends } from '../../lock/backend/lock-backends.js';
import { prototypesOf } from './noted-methods.js';

/** A method whose decorator names a backend. */
interface NotedBackend {
  /** `@Decorator of Class.method` */
  readonly place: string;
  readonly backend: string;
}

/** Not of the global registry: another copy of the package has a check, and backends, of its own. */
const NOTED_BACKENDS = Symbol('named backends');

/** Called at decoration, with the prototype of the class. */
export function noteNamedBackend(target: object, noted: NotedBackend): void {
  Reflect.defineMetadata(NOTED_BACKENDS, [...notedOn(target), noted], target);
}

/**
 * Warns at start-up of decorators that name a backend which the application does not have: their calls will throw
 * `LockConfigError`.
 */
@Injectable()
export class NamedBackendsCheck implements OnModuleInit {
  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(LockBackends) private readonly backends: LockBackends,
  ) {}

  onModuleInit(): void {
    const modules = this.discovery.getProviders().filter(({ token }) => token === LockBackends);
    // Which of several modules serves a method is not known here.
    if (modules.length > 1) return;
    for (const { place, backend } of new Set([...prototypesOf(this.discovery)].flatMap(notedOn))) {
      if (!this.backends.has(backend))
        this.warn(`${place}: ${this.backends.unknown(backend).message}; each call throws this`);
    }
  }

  /** No two lines are of one kind. */
  private warn(line: string): void {
    this.backends.logger.warn(line, line);
  }
}

/** Those of the class and of the classes that it extends. */
function notedOn(prototype: object): readonly NotedBackend[] {
  return (Reflect.getMetadata(NOTED_BACKENDS, prototype) as NotedBackend[] | undefined) ?? [];
}
