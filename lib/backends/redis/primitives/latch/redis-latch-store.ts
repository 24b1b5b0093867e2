import type { Pending } from '../../../../contracts/pending.js';
import type {
  ArrivalRequest,
  DefineLatchRequest,
  LatchListener,
  LatchState,
  LatchStore,
} from '../../../../contracts/primitives/latch-store.js';
import type { RedisLink } from '../../redis-link.js';
import type { RedisInteger } from '../../scripting/redis-replies.js';
import { ScriptBatch } from '../../scripting/script-batch.js';
import { primitiveChannels, primitiveKey } from '../primitive-key.js';
import type { RedisPrimitiveChannel } from '../redis-primitive-channel.js';
import { ARRIVE_AT_LATCH } from './arrive.lua.js';
import { DEFINE_LATCH } from './define.lua.js';
import { LOOK_AT_LATCH } from './look.lua.js';

/** Count-down latches on Redis: three keys for each, described at `latchScript`. */
export class RedisLatchStore implements LatchStore {
  private readonly definitions: ScriptBatch;
  private readonly arrivals: ScriptBatch;
  private readonly looks: ScriptBatch;
  private readonly channels: string;

  constructor(
    { scripts }: RedisLink,
    private readonly prefix: string | undefined,
    private readonly channel: RedisPrimitiveChannel,
  ) {
    this.definitions = new ScriptBatch(scripts, DEFINE_LATCH);
    this.arrivals = new ScriptBatch(scripts, ARRIVE_AT_LATCH);
    this.looks = new ScriptBatch(scripts, LOOK_AT_LATCH);
    this.channels = primitiveChannels(prefix);
  }

  define({ name, count, ttl }: DefineLatchRequest): Pending<LatchState> {
    return this.definitions.run(this.channels, this.keysOf(name), [count, ttl], (reply) => stateOf(reply) ?? never());
  }

  arrive({ name, arrival }: ArrivalRequest): Pending<LatchState | undefined> {
    return this.arrivals.run(this.channels, this.keysOf(name), [arrival, name], stateOf);
  }

  look(name: string, process = ''): Pending<LatchState | undefined> {
    return this.looks.run(this.channels, this.keysOf(name), [process], stateOf);
  }

  listen(listener: LatchListener): void {
    this.channel.listen('latch', listener.process, {
      onMessage: (name) => listener.onOpen(name),
      onConnected: () => listener.onConnected(),
    });
  }

  unlisten(process: string): void {
    this.channel.unlisten(process);
  }

  private keysOf(name: string): string[] {
    const key = primitiveKey('latch', { prefix: this.prefix, name });
    return [key, `${key}:arrivals`, `${key}:waiting`];
  }
}

function stateOf(reply: unknown): LatchState | undefined {
  const [count, remaining] = (reply as RedisInteger[]).map(Number) as [number, number];
  return count === 0 ? undefined : { count, remaining };
}

function never(): never {
  throw new Error('Redis answered no count for a latch that it has just defined');
}
