/** gRPC codes, as the JSON gateway reports them. */
const CANCELLED = 1;
const DEADLINE_EXCEEDED = 4;
const UNAVAILABLE = 14;
const UNAUTHENTICATED = 16;
/** A server that is being stopped answers `CANCELLED`, too. */
const OF_MEMBER = new Set([CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE]);

/** A server answered that it does not carry out the request. */
export class EtcdRefusal extends Error {
  override readonly name = 'EtcdRefusal';
  /** Whether an earlier send of the request may have been carried out. */
  resent = false;

  constructor(
    message: string,
    readonly code: number,
  ) {
    super(message);
  }

  /** Whether another member may serve the request, as where a proxy finds no server. */
  get isOfMember(): boolean {
    return OF_MEMBER.has(this.code) || this.message.startsWith('HTTP 5');
  }

  /** Whether the cluster may have carried out the request all the same. */
  get isUncertain(): boolean {
    return this.isOfMember && !this.message.includes('no leader');
  }

  /**
   * Whether a new token of the same user would be accepted: etcd forgets tokens, and each change of a role ends all.
   */
  get isOfToken(): boolean {
    return this.code === UNAUTHENTICATED || /invalid auth token|revision in header is old/.test(this.message);
  }
}

/** A server did not answer. */
export class EtcdSilence extends Error {
  override readonly name = 'EtcdSilence';

  constructor(
    /** Whether it may have carried out the request. */
    readonly isUncertain: boolean,
    cause: Error,
  ) {
    super(messageOf(cause), { cause });
  }
}

function messageOf(error: Error): string {
  const { code } = error as { code?: unknown };
  const each =
    error instanceof AggregateError ? (error.errors as Error[]).map(({ message }) => message).join(', ') : '';
  const text = each || error.message;
  return typeof code !== 'string' || text.includes(code) ? text : `${text} (${code})`;
}

/** No endpoint served the request. */
export class EtcdUnavailable extends Error {
  override readonly name = 'EtcdUnavailable';
}

/** Whether the lease of the request has ended. */
export function leaseIsGone(error: unknown): error is EtcdRefusal {
  return error instanceof EtcdRefusal && error.message.includes('requested lease not found');
}
