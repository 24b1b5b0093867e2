import type { PoolConfig } from 'pg';
import type { ModuleContext, QueueAnswer, QueueMessage } from '../../../contracts/lock-backend.js';
import { ListeningConnection } from '../connection/listening-connection.js';
import type { PostgresLink } from '../connection/postgres-link.js';

/** The longest id of a process (bytes) that fits into the name of a channel: see `tell` in waiter.sql.ts. */
const LONGEST_PROCESS = 47;
/** The longest name (characters of JSON) that a message of fewer than 8,000 bytes carries: see `tell`. */
const LONGEST_NAME = 7_700;
/** A name of fewer characters than this is shorter than `LONGEST_NAME` in JSON: each becomes six there at most. */
const SHORT = 1_280;

/** The messages of the queue: one channel for each module that uses the backend, all on one connection. */
export class LeaseChannel {
  private readonly listeners = new Map<string, ModuleContext>();
  private readonly connection: ListeningConnection;

  /** `heard` is called with the name of each lock that others want. */
  constructor(
    link: PostgresLink,
    options: PoolConfig | undefined,
    private readonly heard: (name: string) => void,
  ) {
    this.connection = new ListeningConnection(link, options, {
      channels: () => this.listeners.keys(),
      onMessage: (channel, payload) => this.deliver(channel, payload),
      onConnected: () => {
        for (const listener of this.listeners.values()) listener.reconnected();
      },
      onDisconnected: () => {
        for (const listener of this.listeners.values()) listener.interrupted();
      },
    });
  }

  /** Tells a waiter to ask often while no message can arrive: without a connection, or where the name is too long. */
  withReach(answer: QueueAnswer, name: string): QueueAnswer {
    if (answer.status !== 'busy') return answer;
    const reached = this.connection.isConnected && (name.length < SHORT || nameInMessages(name).length < LONGEST_NAME);
    return reached ? answer : { ...answer, unreached: true };
  }

  async listen(module: ModuleContext): Promise<void> {
    const { process } = module;
    if (Buffer.byteLength(process) > LONGEST_PROCESS) {
      throw new Error(`The id of process "${process}" is longer than ${LONGEST_PROCESS} bytes`);
    }
    const channel = channelOf(module);
    this.listeners.set(channel, module);
    if (this.connection.isConnected) await this.connection.listen(channel);
    else await this.connection.open();
  }

  unlisten(module: ModuleContext): void {
    const channel = channelOf(module);
    if (!this.listeners.delete(channel)) return;
    if (this.listeners.size === 0) this.connection.close();
    else this.connection.unlisten(channel);
  }

  close(): void {
    this.listeners.clear();
    this.connection.close();
  }

  private deliver(channel: string, payload: string): void {
    const message = messageOf(payload);
    if (!message) return;
    if (message.kind === 'wanted') this.heard(message.name);
    this.listeners.get(channel)?.message(message);
  }
}

/** A name as messages carry it: JSON in ASCII, for databases of any encoding. */
export function nameInMessages(name: string): string {
  return JSON.stringify(name).replaceAll(
    /[\u0080-\uffff]/g,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** How many names it keeps at most. */
const MOST_CONTENDED = 10_000;

/**
 * The names for which other processes waited when this one last saw them: for these the plain statement would find
 * nothing to do, and cost a round trip.
 */
export class ContendedNames {
  private readonly names = new Set<string>();

  has(name: string): boolean {
    return this.names.size > 0 && this.names.has(name);
  }

  set(name: string, contended: boolean): void {
    if (!contended) this.names.delete(name);
    else {
      if (this.names.size >= MOST_CONTENDED) this.names.clear();
      this.names.add(name);
    }
  }
}

function channelOf({ process }: ModuleContext): string {
  return `nest_redis_lock:${process}`;
}

/** `undefined` for a message of another form: each user of the database may send one. */
function messageOf(text: string): QueueMessage | undefined {
  try {
    return parsed(text);
  } catch {
    return undefined;
  }
}

/**
 * `revoked ticket`, `wanted ticket name`, `ends ticket remaining name` or `grant ticket first-token tokens claim
 * waiting name`; the name is a JSON string.
 */
function parsed(text: string): QueueMessage | undefined {
  const [kind = '', ticket = '', ...rest] = text.split(' ');
  if (kind === 'revoked') return { kind, ticket };
  if (kind === 'wanted') return { kind, ticket, name: nameOf(rest) };
  if (kind === 'ends') return { kind, ticket, remaining: Number(rest[0]), name: nameOf(rest.slice(1)) };
  if (kind !== 'grant') return undefined;
  const [first, count, claim, waiting, ...name] = rest;
  return {
    kind,
    ticket,
    name: nameOf(name),
    tokens: { first: Number(first), count: Number(count) },
    claim: Number(claim),
    waiting: Number(waiting),
  };
}

function nameOf(parts: readonly string[]): string {
  return String(JSON.parse(parts.join(' ')));
}
