/** What an operator can do about an error. The first pattern that matches its code or message applies. */
const REMEDIES: readonly (readonly [pattern: RegExp, remedy: string])[] = [
  [/ECONNREFUSED/, 'nothing listens there: start Redis, or correct host and port'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host name cannot be resolved: correct it'],
  [/ENOENT/, 'the socket does not exist: start Redis, or correct the path'],
  [/EACCES/, 'this process has no permission for the socket: grant it'],
  [/ETIMEDOUT|EHOSTUNREACH|ENETUNREACH/, 'nothing answers there: check host, port and firewall'],
  [/^timeout$/, 'it does not answer: check host, port, firewall, and whether it speaks TLS there'],
  [/ERR_SSL|EPROTO|before secure TLS connection/, 'it does not speak TLS there: give a redis:// URL, or no "tls"'],
  [/CERT|SELF_SIGNED|UNABLE_TO_/, 'its certificate is not trusted: give its authority as tls: { ca }'],
  [/WRONGPASS|invalid password/, 'correct username and password'],
  [/NOAUTH|without any password/, 'give username and password, or none if it asks for none'],
  [/NOPERM|no permissions|user executing the script|ACL failure/, 'grant the ACL user what docs/guide/redis.md lists'],
  [/READONLY/, 'it is a replica: give the address of the primary, or use Sentinel'],
  [/^OOM|command not allowed when used memory/, 'its memory is full: raise maxmemory, or free memory'],
  [/MISCONF/, 'it cannot write to its disk: see its log'],
  [/NOREPLICAS/, 'too few replicas follow it: see min-replicas-to-write'],
  [/LOADING/, 'it still reads its data set: wait'],
  [
    /MOVED/,
    'it is a node of a Redis Cluster and serves a part of the names: give a client of the Cluster, or to redlock() a Redis that serves all',
  ],
  [/CLUSTERDOWN/, 'the Cluster does not serve all slots: see CLUSTER INFO'],
  [
    /ECONNRESET|EPIPE|Connection is closed|closed the connection/,
    'start Redis there, or correct host, port and TLS (rediss://)',
  ],
];

/** What to do about the error, if it is known. */
export function remedyOf(error: Error): string | undefined {
  const text = `${codeOf(error) ?? ''} ${error.message}`;
  return REMEDIES.find(([pattern]) => pattern.test(text) || pattern.test(error.message))?.[1];
}

/** What happened, in one line. A connection that was tried at several addresses has one error for each. */
export function causeOf(error: Error): string {
  const each =
    error instanceof AggregateError ? (error.errors as Error[]).map(({ message }) => message).join(', ') : '';
  const text = (each || error.message || String(codeOf(error))).split('\n', 1)[0] as string;
  const code = codeOf(error);
  return code === undefined || text.includes(code) ? text : `${text} (${code})`;
}

export function codeOf(error: Error): string | undefined {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : undefined;
}
