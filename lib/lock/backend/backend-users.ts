import type { LockBackend } from '../../contracts/lock-backend.js';

const users = new WeakMap<LockBackend, number>();

/** Counts one more user of the backend: several modules may share one. */
export function addUser(backend: LockBackend): void {
  users.set(backend, (users.get(backend) ?? 0) + 1);
}

/** Counts one user less, and closes the backend after the last one. */
export async function removeUser(backend: LockBackend): Promise<void> {
  const left = (users.get(backend) ?? 1) - 1;
  users.set(backend, left);
  if (left === 0) await backend.close();
}
