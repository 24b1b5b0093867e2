import type { LockBackend } from '../../contracts/lock-backend.js';

const users = new WeakMap<LockBackend, Set<object>>();

/** Adds a user that needs the backend open: several modules may share one. */
export function addUser(backend: LockBackend, user: object): void {
  const all = users.get(backend) ?? new Set();
  users.set(backend, all.add(user));
}

/** Takes `user` off the list, and closes the backend unless another user is on it. */
export async function removeUser(backend: LockBackend, user: object): Promise<void> {
  const others = users.get(backend);
  others?.delete(user);
  if (!others?.size) await backend.close();
}
