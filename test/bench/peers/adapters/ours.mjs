import { connectLocks } from '../../worker/lock-service.mjs';
import { LEASE, WAIT } from '../patience.mjs';

export async function connect({ port }) {
  const locks = await connectLocks(port);
  return (key, body) => locks.withLock(key, { ttl: LEASE, wait: WAIT }, body);
}
