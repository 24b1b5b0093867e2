import { Injectable, Logger } from '@nestjs/common';
import { cacheChannels, type CacheEventTypes } from '../events/cache-channels.js';
import { LimitedLog } from '../errors/limited-log.js';
import { EventStream } from './event-stream.js';

/** What happens in the caches of this process. Provided by `RedisLockModule`. */
@Injectable()
export class CacheEvents extends EventStream<CacheEventTypes> {
  /** @internal */
  constructor() {
    super(cacheChannels, new LimitedLog(new Logger('RedisLock')));
  }
}
