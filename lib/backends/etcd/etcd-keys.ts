import type { NameRequest } from '../../contracts/lock-backend.js';

type Prefixed = Pick<NameRequest, 'prefix'>;

/**
 * The keys of all locks. Each has one segment for the module's prefix, which may be empty, and one for the name or the
 * process: a `/` in them is encoded, so that no name is the beginning of another one's keys.
 */
export class EtcdKeys {
  /** What is added to every token. */
  readonly offset: string;

  constructor(private readonly root: string) {
    this.offset = `${root}first-token`;
  }

  /** What the keys of the owner and of all waiters of a name begin with, and no others: one condition covers them. */
  all({ prefix, name }: NameRequest): string {
    return `${this.key('lock', prefix, name)}/`;
  }

  /** Its value is the ticket that owns the lock. */
  lock(request: NameRequest): string {
    return `${this.all(request)}owner`;
  }

  /** What the keys of all waiters of a name begin with. The ticket follows. They have no value, unlike the owner's. */
  waiters(request: NameRequest): string {
    return `${this.all(request)}wait/`;
  }

  /** Where a process gets its messages. */
  mailbox({ prefix }: Prefixed, process: string): string {
    return this.key('mail', prefix, process);
  }

  label({ prefix }: Prefixed, process: string): string {
    return this.key('label', prefix, process);
  }

  /** The request for the name of a lock, or of the waiter with the ticket; `undefined` for another key. */
  nameIn(key: string): (NameRequest & { readonly waiter: string | undefined }) | undefined {
    const [kind, prefix = '', name, role, ...ticket] = key.slice(this.root.length).split('/');
    if (!key.startsWith(this.root) || kind !== 'lock' || name === undefined) return undefined;
    const waiter = role === 'wait' ? ticket.join('/') : undefined;
    return { ...(prefix !== '' && { prefix: unescaped(prefix) }), name: unescaped(name), waiter };
  }

  private key(kind: string, prefix: string | undefined, name: string): string {
    return `${this.root}${kind}/${escaped(prefix ?? '')}/${escaped(name)}`;
  }
}

/** What the tickets of a process begin with. */
export function processOf(ticket: string): string {
  return ticket.slice(0, ticket.lastIndexOf(':'));
}

function escaped(text: string): string {
  return text.replace(/[%/]/g, (char) => (char === '%' ? '%25' : '%2F'));
}

function unescaped(text: string): string {
  return text.replace(/%2F|%25/g, (code) => (code === '%25' ? '%' : '/'));
}
