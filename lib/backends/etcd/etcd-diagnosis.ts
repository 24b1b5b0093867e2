import type { EtcdClient } from './client/etcd-client.js';

/** What an operator can do about an error. The first pattern that matches its message applies. */
const REMEDIES: readonly (readonly [pattern: RegExp, remedy: string])[] = [
  [
    /database space exceeded|NOSPACE/,
    'its disk quota is used up: compact and defragment it, then etcdctl alarm disarm',
  ],
  [/CORRUPT/, 'the data of its members differ: see its log'],
  [/no leader|leader changed|request timed out/, 'most of its members do not answer each other: see their logs'],
  [/authentication failed/, 'correct username and password'],
  [/authentication is not enabled/, 'give no username and password'],
  [/user name is empty|user name not found/, 'it asks for a user: give username and password'],
  [/permission denied/, 'grant the user the right to read and to write the keys below "root"'],
  [/invalid auth token|auth store is old/, 'it has forgotten who we are: see whether its members have one clock'],
  [/too many operations/, 'raise its --max-txn-ops to 128, the default'],
  [/ECONNREFUSED/, 'nothing listens there: start etcd, or correct host and port'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host name cannot be resolved: correct it'],
  [/no answer within|Connect Timeout/, 'check host, port and firewall'],
  [/ETIMEDOUT|EHOSTUNREACH|ENETUNREACH/, 'nothing answers there: check host, port and firewall'],
  [/ALTNAME_INVALID/, 'its certificate is for another host: give a host that it names, or one that names this host'],
  [/CERT|SELF_SIGNED|UNABLE_TO_/, 'its certificate is not trusted: give its authority as tls: { ca }'],
  [/bad certificate|certificate required/i, 'it asks for a certificate: give tls: { cert, key }'],
  [/wrong version number|EPROTO|ERR_SSL/, 'it does not speak TLS there: give an http:// URL'],
  [
    /HTTP request to an HTTPS server|other side closed|HPE_|ECONNRESET|EPIPE/,
    'check host and port, and whether it asks for https://',
  ],
  [/HTTP 200/, 'something other than etcd answers there: correct host, port and path'],
  [/HTTP 404|Not Found/, 'it has no JSON gateway under /v3: etcd 3.4 or newer is needed, with --enable-grpc-gateway'],
];

/** An error that names the server, the cause and the remedy already. */
export class EtcdProblem extends Error {
  override readonly name = 'EtcdProblem';
}

/** Why a call failed, in one line: the server, the cause, the remedy. */
export function diagnosisOf(client: EtcdClient, error?: unknown): Error {
  if (error instanceof EtcdProblem) return error;
  const message = error instanceof Error ? error.message : undefined;
  const cause = client.failures() ?? message ?? 'no answer in time';
  const where = client.failures() === undefined ? ` at ${client.endpoints.map(({ url }) => url).join(', ')}` : '';
  const remedy = remedyOf(message ?? cause) ?? remedyOf(cause);
  return new Error(`etcd${where}: ${cause}${remedy === undefined ? '' : `; ${remedy}`}`, { cause: error });
}

export function remedyOf(message: string): string | undefined {
  return REMEDIES.find(([pattern]) => pattern.test(message))?.[1];
}
