import { Inject, Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { LimitedLog } from '../../errors/limited-log.js';
import { byTemplate, notedMethods, type PresentMethod } from './noted-methods.js';

/** Warns at start-up of `@Idempotent` methods whose calls would repeat the result of another call by mistake. */
@Injectable()
export class IdempotentMethodsCheck implements OnModuleInit {
  private readonly logger = new LimitedLog(new Logger('RedisLock'));

  constructor(@Inject(DiscoveryService) private readonly discovery: DiscoveryService) {}

  onModuleInit(): void {
    const methods = notedMethods(this.discovery).filter(({ decorator }) => decorator === 'Idempotent');
    for (const [template, sharing] of byTemplate(methods)) {
      const names = sharing.map(({ name }) => name).join(' and ');
      if (sharing.length > 1) {
        this.warn(
          `${names} are idempotent under one key template, "${template}", so each repeats what the other has answered: give ` +
            'each a key of its own',
        );
      } else if (sharing.some(hasOneKeyForAll)) {
        this.warn(
          `${names} is idempotent under one key, "${template}", whatever its arguments are, so each call repeats the first: ` +
            `name them in it, as in "${template}:<0>"; where that is meant, give () => '${template}'`,
        );
      }
    }
  }

  /** No two lines are of one kind. */
  private warn(line: string): void {
    this.logger.warn(line, line);
  }
}

/** With a fingerprint, a call with other arguments is refused. */
function hasOneKeyForAll({ template, parameters, options }: PresentMethod): boolean {
  return parameters > 0 && !template?.includes('<') && options['fingerprint'] === undefined;
}
