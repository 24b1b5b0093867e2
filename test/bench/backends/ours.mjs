import 'reflect-metadata';
import { LEASE, WAIT } from '../peers/patience.mjs';
import { connectBackend } from '../worker/lock-service.mjs';

/** Ours on a backend: the lock service of an application. */
export async function ours(backend) {
  const locks = await connectBackend(backend);
  return (key, body) => locks.withLock(key, { ttl: LEASE, wait: WAIT }, ({ fencingToken }) => body(fencingToken));
}
