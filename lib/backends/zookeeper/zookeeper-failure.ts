import { Exception } from 'node-zookeeper-client';
import { codeOf } from './session/zookeeper-requests.js';
import { SessionError } from './session/zookeeper-session.js';
import type { ZooKeeperSettings } from './zookeeper-options.js';

/** Why ZooKeeper did not do what it was asked for: names the servers, the cause and the remedy. */
export class ZooKeeperFailure extends Error {
  override readonly name = 'ZooKeeperFailure';
}

/** @param trouble what is wrong with the connection, if anything is known to be */
export function failureOf(
  { servers, chroot, root, auth }: ZooKeeperSettings,
  trouble: string | undefined,
  error?: unknown,
): ZooKeeperFailure | undefined {
  if (error instanceof ZooKeeperFailure) return error;
  const failure = (why: string) => new ZooKeeperFailure(`ZooKeeper at ${servers}${chroot}: ${why}`, { cause: error });
  switch (codeOf(error)) {
    case Exception.NO_AUTH:
      return failure(
        auth
          ? `user "${auth.user}" may not use ${root} (NO_AUTH); name another "root", or the user of its ACL`
          : `${root} is not open to everybody (NO_AUTH); give "auth" with the user of its ACL, or name another "root"`,
      );
    case Exception.NO_NODE:
      if (chroot === '') break;
      return failure(`the chroot ${chroot} is not there; create it, or leave it out`);
    case Exception.CONNECTION_LOSS:
    case Exception.SESSION_EXPIRED:
      return failure(`${trouble ?? 'the connection was closed'}; start a server, or correct "servers"`);
    default:
  }
  if (error instanceof SessionError && error.refused) return failure(`${error.message}; correct "auth"`);
  if (error === undefined || error instanceof SessionError) {
    const why = trouble ?? error?.message;
    return why === undefined ? undefined : failure(`${why}; start a server, or correct "servers"`);
  }
  return failure(error instanceof Error ? error.message : 'unknown error');
}
