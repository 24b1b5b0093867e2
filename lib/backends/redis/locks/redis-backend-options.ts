import type { Duration } from '../../../options/duration.js';
import { lockOption } from '../../../options/option-checks.js';
import { OptionTable, settingOf } from '../../../options/option-table.js';
import { fenceTtlOf } from '../fencing/fence-ttl.js';

/** The options of `redis()` beside the connection. */
export interface RedisBackendOptions {
  /**
   * How long Redis keeps the counter of the fencing tokens of a name after its last grant: about 124 bytes for each
   * name. Tokens rise even without it, because they start from the time of Redis; the counter bridges the difference of
   * two servers' clocks when a name moves to another server. At least 1 s.
   * @default '10m'
   */
  fenceTtl?: Duration;
  /**
   * How many replicas must confirm each grant, within a third of `commandTimeout` from the `WAIT` on. A grant that they
   * do not confirm is released, and the call rejects with `LockReplicationError`. This makes it less likely that a
   * failover forgets a lock, and does not exclude it. Each grant takes a `WAIT` longer, which goes over a connection of
   * its own. Refused on a Cluster; a Sentinel client of node-redis cannot do it.
   * @default 0
   */
  minReplicas?: number;
}

export interface RedisBackendSettings {
  /** `undefined`: the default. */
  readonly fenceTtl: number | undefined;
  readonly minReplicas: number;
}

const setting = settingOf<RedisBackendSettings>();

const OPTIONS = new OptionTable<RedisBackendOptions, RedisBackendSettings>(
  lockOption,
  'option of redis()',
  '',
  { fenceTtl: undefined, minReplicas: 0 },
  { fenceTtl: setting('fenceTtl', fenceTtlOf), minReplicas: setting('minReplicas', minReplicas) },
);

function minReplicas(value: unknown, option: string): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw lockOption.refused(option, value, 'a whole number from 0 on');
}

/** @throws LockConfigError with the option, the value and the remedy */
export function redisBackendSettings(options: RedisBackendOptions): RedisBackendSettings {
  return OPTIONS.settings(lockOption.object('options', options, 'an object of options of redis()'));
}
