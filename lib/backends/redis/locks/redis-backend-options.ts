import type { Duration } from '../../../options/duration.js';
import { lockOption } from '../../../options/option-checks.js';
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

/** @throws LockConfigError */
export function redisBackendSettings({ fenceTtl, minReplicas = 0 }: RedisBackendOptions): RedisBackendSettings {
  if (!Number.isSafeInteger(minReplicas) || minReplicas < 0) {
    throw lockOption.refused('minReplicas', minReplicas, 'a whole number from 0 on');
  }
  return { fenceTtl: fenceTtl === undefined ? undefined : fenceTtlOf(fenceTtl), minReplicas };
}
