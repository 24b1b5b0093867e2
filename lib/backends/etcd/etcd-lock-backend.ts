import type {
  AcquireAnswer,
  AcquireRequest,
  AcquireSeveralRequest,
  LabelRequest,
  LockBackend,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  Pending,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
  Notice,
} from '../../contracts/lock-backend.js';
import { MOST_WAITERS, processOf } from '../../contracts/lock-requests.js';
import { LockKeyError } from '../../errors/lock-errors.js';
import type { LossListener } from '../sessions/session-locks.js';
import { EtcdClient } from './etcd-client.js';
import { leaseIsGone, type EtcdEndpoint } from './etcd-endpoint.js';
import { EtcdLockQueue } from './etcd-lock-queue.js';
import { EtcdKeys, EtcdNames } from './etcd-names.js';
import { etcdSettings, type EtcdOptions, type EtcdSettings } from './etcd-options.js';
import { EtcdReleases } from './etcd-releases.js';
import { EtcdSessions } from './etcd-session.js';
import { EtcdSweep } from './etcd-sweep.js';
import {
  count,
  decode,
  get,
  hasValue,
  put,
  remove,
  EtcdTransactions,
  isSince,
  putForGood,
} from './etcd-transactions.js';
import { TokenOffset } from './token-offset.js';

/**
 * Locks on etcd 3.4 or newer, over the JSON gateway of its members, by `undici`. The locks of a process live with one
 * lease of etcd, which the backend keeps alive; when the process dies, etcd frees them after `ttl`.
 *
 * @throws LockConfigError for options that it cannot take
 */
export function etcd(options: EtcdOptions): LockBackend {
  return new EtcdLockBackend(etcdSettings(options));
}

/** How many names one transaction can take: each needs three of its 128 operations. */
const MOST_NAMES = 40;
/** How many names are looked at in one transaction. */
const NAMES_AT_ONCE = 60;

/** Who owns a name, by which lease, and how many wait for it. */
interface Look {
  readonly ticket: string;
  readonly lease: string | undefined;
  readonly waiting: number;
}

class EtcdLockBackend implements LockBackend {
  readonly name = 'etcd';
  readonly traits: LockTraits = { lease: 'session', fencing: 'strict', leastLease: 1 };
  readonly queue: EtcdLockQueue;
  private readonly client: EtcdClient;
  private readonly keys: EtcdKeys;
  private readonly transactions: EtcdTransactions;
  private readonly offset: TokenOffset;
  private readonly sessions: EtcdSessions;
  private readonly names: EtcdNames;
  private readonly releases: EtcdReleases;
  private readonly sweep: EtcdSweep;

  constructor(settings: EtcdSettings) {
    const { root, ttl, firstToken } = settings;
    this.client = new EtcdClient(settings);
    this.keys = new EtcdKeys(root);
    this.transactions = new EtcdTransactions(this.client);
    this.offset = new TokenOffset(this.keys.offset, this.transactions);
    const keyOf = (lease: string) => this.keys.session(lease);
    this.sessions = new EtcdSessions(this.client, this.transactions, keyOf, ttl, () =>
      this.offset.startAfter(firstToken),
    );
    this.names = new EtcdNames(this.keys, this.transactions, this.offset, this.sessions);
    this.releases = new EtcdReleases(this.names);
    this.sweep = new EtcdSweep(this.client, this.names, this.releases, ttl * 1_000);
    this.queue = new EtcdLockQueue(this.client, this.names, () => this.sweep.start());
    this.client.whenInDoubt(() => this.sweep.start());
  }

  acquire({ name, ...request }: AcquireRequest): Promise<AcquireAnswer> {
    return this.acquireSeveral({ ...request, names: [name] });
  }

  async acquireSeveral(request: AcquireSeveralRequest): Promise<AcquireAnswer> {
    const { names, ticket } = request;
    if (names.length > MOST_NAMES) {
      throw new LockKeyError(
        `etcd takes at most ${MOST_NAMES} names in one step; give fewer than ${names.length}`,
        names,
      );
    }
    return this.sessions.ask(ticket, (begin) => this.ask(request, begin));
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    const session = this.sessions.present;
    if (!session) return requests.map(() => Promise.resolve({ status: 'not-owner' }));
    const renewed = session.refresh();
    const chunks: Promise<readonly Look[]>[] = [];
    for (let from = 0; from < requests.length; from += NAMES_AT_ONCE) {
      chunks.push(this.look(requests.slice(from, from + NAMES_AT_ONCE)));
    }
    return requests.map(async ({ ticket }, index): Promise<RenewAnswer> => {
      const [found] = await Promise.all([Promise.all(chunks), renewed]);
      const own = found.flat()[index] as Look;
      const remaining = session.remaining();
      const owned = own.ticket === ticket && own.lease === session.lease;
      if (!owned || remaining === 0) return { status: 'not-owner' };
      return { status: 'renewed', remaining, waiting: own.waiting };
    });
  }

  release(request: TicketRequest): Pending<ReleaseAnswer> {
    return this.releases.release(request);
  }

  async mint(request: MintRequest): Promise<TokenRange | null> {
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await this.offset.tryAgain(tries);
      await this.offset.raiseTo(request.leastToken);
      const outcome = await this.names.mint(request, request.ticket);
      if (outcome.succeeded) return this.offset.tokensOf(outcome.revision);
      if (this.names.stateIn(outcome).owner?.ticket !== request.ticket) return null;
    }
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    const outcome = await this.transactions.read(this.names.reads(request, MOST_WAITERS));
    const { owner, waiting } = this.names.stateIn(outcome);
    if (!owner) return null;
    const queue = this.names.queueIn(outcome);
    const [ttl, labels] = await Promise.all([
      this.ttlOf(owner.lease),
      this.transactions.read(
        [owner.ticket, ...queue].map((ticket) => get(this.keys.label(request, processOf(ticket)))),
      ),
    ]);
    if (ttl === 0) return null;
    const { first, count: tokens } = this.offset.tokensOf(owner.revision);
    const labelAt = (index: number) => {
      const label = labels.first(index)?.value;
      return label === undefined ? {} : { label: decode(label) };
    };
    const waiters = queue.map((ticket, index) => ({ ticket, ...labelAt(index + 1) }));
    return { owner: owner.ticket, ...labelAt(0), ttl, fencingToken: first + tokens - 1, waiting, waiters };
  }

  /** The label lives as long as the session of the process. */
  async label(request: LabelRequest): Promise<void> {
    const key = this.keys.label(request, request.process);
    if (request.ttl === 0) await this.transactions.run({ compare: [], success: [remove(key)], failure: [] });
    else {
      const { lease } = await this.sessions.current();
      await this.transactions.run({ compare: [], success: [put(key, request.label, lease)], failure: [] });
    }
  }

  forceRelease(request: NameRequest): Promise<string | null> {
    return this.releases.force(request);
  }

  onLost(listener: LossListener): () => void {
    return this.sessions.onLost(listener);
  }

  whenConnected(listener: () => void): () => void {
    return this.sessions.whenInDoubt(listener);
  }

  start(request: StartRequest): Promise<void> {
    return checkCluster(this.client, this.keys, this.transactions, request.report);
  }

  diagnose(error?: unknown): Error {
    return failureOf(this.client, error);
  }

  async ping(): Promise<void> {
    await this.transactions.read([get(this.keys.offset)]);
  }

  async close(): Promise<void> {
    this.sweep.close();
    this.queue.close();
    try {
      await this.sessions.close();
    } catch {
      // etcd ends the lease by itself.
    }
    this.client.close();
  }

  private async ask(
    { prefix, names, ticket, leastToken = 0 }: AcquireSeveralRequest,
    begin: () => void,
  ): Promise<AcquireAnswer> {
    const requests = names.map((name) => ({ prefix, name }));
    /** The names that an earlier send has taken. */
    let own = new Set<NameRequest>();
    for (let tries = 0; ; tries += 1) {
      if (tries > 0) await this.offset.tryAgain(tries);
      const session = await this.sessions.current();
      await this.offset.raiseTo(leastToken);
      begin();
      const outcome = await this.transactions
        .run({
          compare: requests.flatMap((request) =>
            own.has(request) ? [hasValue(this.keys.lock(request), ticket)] : this.names.isFree(request),
          ),
          success: requests.map((request) => this.names.give(request, ticket, session.lease)),
          failure: requests.flatMap((request) => this.names.reads(request)),
        })
        .catch((error: unknown) => {
          if (!leaseIsGone(error)) throw error;
          session.end(error);
        });
      if (!outcome) continue;
      if (outcome.succeeded) return this.names.granted(outcome.revision, 0, session.lease);
      const states = requests.map((request, index) => ({ request, ...this.names.stateIn(outcome, 3 * index) }));
      const busy = states.find(({ owner, first }) => (owner ? owner.ticket !== ticket : first !== undefined));
      own = new Set(states.filter(({ owner }) => owner?.ticket === ticket).map(({ request }) => request));
      if (!busy) continue;
      this.sessions.tickets.delete(ticket);
      const { owner, first, request } = busy;
      if (!owner && first) await this.names.handOver(request, { ...busy, first });
      return { status: 'busy', name: request.name, owner: owner?.ticket ?? '', remaining: Infinity };
    }
  }

  private async look(requests: readonly NameRequest[]): Promise<readonly Look[]> {
    const outcome = await this.transactions.read(
      requests.flatMap((request) => [get(this.keys.lock(request)), count(this.keys.waiters(request))]),
    );
    return requests.map((_, index) => {
      const kv = outcome.first(2 * index);
      return { ticket: decode(kv?.value), lease: kv?.lease, waiting: outcome.count(2 * index + 1) };
    });
  }

  /** Milliseconds left of a lease; 0 when it has ended. */
  private async ttlOf(lease: string): Promise<number> {
    if (lease === '0') return Infinity;
    const { answer } = await this.client.call<{ TTL?: string }>('/v3/lease/timetolive', { ID: lease });
    return Math.max(0, Number(answer.TTL ?? 0)) * 1_000;
  }
}

const LEAST_VERSION = [3, 4] as const;
/** A revision that no key has. */
const NEVER = '-1';

interface Status {
  readonly version: string;
  readonly leader?: string;
  /** Such as `etcdserver: no leader`, or an alarm. */
  readonly errors?: readonly string[];
}

/**
 * Looks at every member. Reports those that do not answer.
 *
 * @throws Error when none answers, or one that does cannot serve, in one line
 */
async function checkCluster(
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

function requireService({ url }: EtcdEndpoint, { version, errors = [] }: Status): void {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [leastMajor, leastMinor] = LEAST_VERSION;
  if (major < leastMajor || (major === leastMajor && minor < leastMinor)) {
    throw new EtcdProblem(`etcd at ${url} is version ${version}; ${leastMajor}.${leastMinor} or newer is needed`);
  }
  if (errors.length > 0) throw problem(`${url}: ${errors.join(', ')}`);
}

/** etcd checks the rights for both branches of a transaction: this one never writes. */
async function requireRights({ offset }: EtcdKeys, transactions: EtcdTransactions): Promise<void> {
  try {
    await transactions.run({ compare: [isSince(offset, NEVER)], success: [putForGood(offset, '0')], failure: [] });
  } catch (error) {
    throw problem((error as Error).message);
  }
}

/** An error that names the server, the cause and the remedy already. */
class EtcdProblem extends Error {
  override readonly name = 'EtcdProblem';
}

/** Why a call failed, in one line: the server, the cause, the remedy. */
function failureOf(client: EtcdClient, error?: unknown): Error {
  if (error instanceof EtcdProblem) return error;
  const message = error instanceof Error ? error.message : undefined;
  const cause = client.failures() ?? message ?? 'no answer in time';
  const where = client.failures() === undefined ? ` at ${client.endpoints.map(({ url }) => url).join(', ')}` : '';
  const remedy = remedyOf(message ?? cause) ?? remedyOf(cause);
  return new Error(`etcd${where}: ${cause}${remedy === undefined ? '' : `; ${remedy}`}`, { cause: error });
}

function problem(causes: string): Error {
  return new EtcdProblem(`etcd: ${causes}${advice(causes)}`);
}

function advice(causes: string): string {
  const remedy = remedyOf(causes);
  return remedy === undefined ? '' : `; ${remedy}`;
}

function remedyOf(message: string): string | undefined {
  return REMEDIES.find(([pattern]) => pattern.test(message))?.[1];
}

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
