import type { Notice } from '../../contracts/lock-backend.js';
import type { EtcdClient } from './client/etcd-client.js';
import type { EtcdEndpoint } from './client/etcd-endpoint.js';
import { isSince, putForGood } from './client/etcd-messages.js';
import type { EtcdKeys } from './etcd-keys.js';
import type { EtcdTransactions } from './client/etcd-transactions.js';
import { EtcdProblem, remedyOf } from './etcd-diagnosis.js';

interface Status {
  readonly version: string;
  readonly leader?: string;
  /** Such as `etcdserver: no leader`, or an alarm. */
  readonly errors?: readonly string[];
}

const LEAST_VERSION = [3, 4] as const;
/** A revision that no key has. */
const NEVER = '-1';

/**
 * Looks at every member. Reports those that do not answer.
 *
 * @throws Error when none answers, or one that does cannot serve, in one line
 */
export async function checkCluster(
  client: EtcdClient,
  keys: EtcdKeys,
  transactions: EtcdTransactions,
  report: (notice: Notice) => void,
): Promise<void> {
  const answers = await Promise.all(
    client.endpoints.map(async (endpoint) => ({ endpoint, ...(await statusOf(client, endpoint)) })),
  );
  const silent = answers.filter(({ status }) => status === undefined);
  const causes = silent.map(({ endpoint, why }) => `${endpoint.url}: ${why?.message}`).join('; ');
  if (silent.length === answers.length) throw problem(causes);
  if (silent.length > 0) {
    const message = `etcd: ${causes}; the other ${answers.length - silent.length} of ${answers.length} endpoints serve`;
    report({ level: 'warn', message: `${message}${advice(causes)}` });
  }
  for (const { endpoint, status } of answers) if (status) requireService(endpoint, status);
  await requireRights(keys, transactions);
}

async function statusOf(
  client: EtcdClient,
  endpoint: EtcdEndpoint,
): Promise<{ readonly status?: Status; readonly why?: Error }> {
  try {
    return { status: await client.ask<Status>(endpoint, '/v3/maintenance/status') };
  } catch (error) {
    return { why: error as Error };
  }
}

/** etcd checks the rights for both branches of a transaction: this one never writes. */
async function requireRights({ offset }: EtcdKeys, transactions: EtcdTransactions): Promise<void> {
  try {
    await transactions.run({ compare: [isSince(offset, NEVER)], success: [putForGood(offset, '0')], failure: [] });
  } catch (error) {
    throw problem((error as Error).message);
  }
}

function requireService({ url }: EtcdEndpoint, { version, errors = [] }: Status): void {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [leastMajor, leastMinor] = LEAST_VERSION;
  if (major < leastMajor || (major === leastMajor && minor < leastMinor)) {
    throw new EtcdProblem(`etcd at ${url} is version ${version}; ${leastMajor}.${leastMinor} or newer is needed`);
  }
  if (errors.length > 0) throw problem(`${url}: ${errors.join(', ')}`);
}

function problem(causes: string): Error {
  return new EtcdProblem(`etcd: ${causes}${advice(causes)}`);
}

function advice(causes: string): string {
  const remedy = remedyOf(causes);
  return remedy === undefined ? '' : `; ${remedy}`;
}
