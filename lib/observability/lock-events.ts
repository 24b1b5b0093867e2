import { Injectable, Logger } from '@nestjs/common';
import { lockChannels, type LockEventTypes } from '../events/lock-channels.js';
import { LimitedLog } from '../errors/limited-log.js';
import { EventStream } from './event-stream.js';

/** What happens to the locks of this process. Provided by `RedisLockModule`. */
@Injectable()
export class LockEvents extends EventStream<LockEventTypes> {
  /** @internal */
  constructor() {
    super(lockChannels, new LimitedLog(new Logger('RedisLock')));
  }
}
