// The check of a server at the start of the application: writes, eviction, and the rights of its user.

import { messageOf } from '../../../errors/limited-log.js';
import calculateSlot from 'cluster-key-slot';
import { BackendRefusal, refusalIn, type Notice } from '../../../contracts/store.js';
import { addressOf, serverOf } from './connection-options.js';
import { remedyClause } from '../../failures.js';
import { NO_RIGHT, REMEDIES, RedisFailure } from './connection-state.js';
import { isCluster, mastersOf, type RedisCluster, type RedisNode } from './redis-client.js';
import { redisScript } from './redis-script.js';
import type { ScriptRunner } from './script-runner.js';
import { connectionForMessages } from './watched-subscriber.js';

/**
 * Checks a server, or each master of a Cluster, before it is used: whether it takes writes and has the database,
 * whether it may evict what must stay, and whether its user has the rights needed. Calls `note` once it is known that
 * the client is in its database, and where the server does not answer, so that it is tried again later.
 *
 * @throws RedisFailure in one line, for the first server that cannot be used; BackendRefusal for a node of a Cluster by
 * itself
 */
export async function checkServers(
  scripts: ScriptRunner,
  rights: Rights,
  report: (notice: Notice) => void,
  note: () => Promise<void> = async () => {},
): Promise<void> {
  const { client } = scripts;
  try {
    await scripts.command(() => client.ping());
    await Promise.all(mastersOf(client).map((node) => requireDatabase(node, serverOf(node))));
  } catch (error) {
    if (!refusalIn(error)) void note();
    throw error;
  }
  const noted = note();
  await Promise.all(
    mastersOf(client).map((node) => {
      const keys = isCluster(client) ? keysOn(client, node, rights) : keysOfTwoSlots(client.options, rights);
      return checkServer(node, keys, { rights, report, inCluster: isCluster(client) });
    }),
  );
  await noted;
}

/** Why servers may drop locks that are held: a line for each that may. Rejects when one does not answer. */
export async function evictionHazards({ client }: ScriptRunner): Promise<readonly string[]> {
  const notices = await Promise.all(
    mastersOf(client).map(async (node) => evictionNotice(node, await node.info('memory'))),
  );
  return notices.filter((notice) => notice?.level === 'warn').map((notice) => (notice as Notice).message);
}

/** The rights that a part of the library needs from an ACL user. */
export interface Rights {
  /** As in "rights needed for locks". */
  readonly whose: string;
  /** Whether Redis may evict it under memory pressure without breaking a promise. */
  readonly evictable: boolean;
  readonly keyPatterns: readonly string[];
  /** Absent where no messages are sent. */
  readonly messages?: {
    readonly channelPattern: string;
    /** A channel without subscribers. */
    readonly channel: string;
  };
  readonly probes: readonly Probe[];
  /** Commands that are sent by themselves, as no script may run them. */
  readonly commands?: readonly (readonly [command: string, ...args: string[]])[];
  /** Keys for one run of the probes, all in one Cluster slot; new ones with each call. */
  keys(): readonly string[];
}

/** A harmless command; a number stands for the key at that position, counted from 1. */
export type Probe = readonly [command: string, ...args: (string | number)[]];

/** Of the clock, and of text with an expiry. */
export const PROBES_OF_TEXT: readonly Probe[] = [
  ['TIME'],
  ['SET', 1, '1', 'PX', '1'],
  ['GET', 1],
  ['EXISTS', 1],
  ['PTTL', 1],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
];

async function checkServer(
  node: RedisNode,
  keys: readonly string[] | undefined,
  { rights, report, inCluster }: ServerCheck,
): Promise<void> {
  const server = serverOf(node);
  if (!rights.evictable) await checkEviction(node, server, report);
  if (!keys) return;
  const missing = new MissingRights(node, rights, inCluster);
  await missing.look(keys);
  const { ofCluster } = missing;
  if (ofCluster)
    throw new BackendRefusal(`${server} refuses keys of two slots: ${ofCluster}${remedyClause(ofCluster, REMEDIES)}`);
  const [refusal] = missing.other;
  if (refusal !== undefined) {
    const remedy = remedyClause(refusal, REMEDIES);
    throw new RedisFailure(`${server} refuses what ${rights.whose} write: ${refusal}${remedy}`);
  }
  const { refused } = missing;
  if (refused.length > 0) {
    const remedy = remedyClause(refused[0]?.text ?? '', REMEDIES);
    const each = refused.map(({ command, text }) => `${command} (${text})`).join(', ');
    const needed = `${server} refuses commands that ${rights.whose} need: ${each}${remedy}`;
    if (refused.some(({ command }) => !isOfMessages(command))) throw new RedisFailure(needed);
    report({ level: 'warn', message: `${needed}. ${WITHOUT_MESSAGES}` });
  }
  if (!missing.any) return;
  const username = node.options.username ?? 'default';
  const problem = `${server}: its ACL user "${username}" lacks rights needed for ${rights.whose}; run ACL SETUSER ${username} ${missing.grants}`;
  if (missing.vital) throw new RedisFailure(problem);
  report({ level: 'warn', message: `${problem}. ${WITHOUT_MESSAGES}` });
}

const WITHOUT_MESSAGES = 'Until then messages do not arrive, and waiters are served more slowly';

function isOfMessages(command: string): boolean {
  return command === 'subscribe' || command === 'publish';
}

/** ioredis stays in database 0 where the connection cannot change to that of the client. */
async function requireDatabase(node: RedisNode, server: string): Promise<void> {
  const database = databaseOf(node);
  if (!database) return;
  try {
    await node.call('SELECT', [database]);
  } catch (error) {
    const why = messageOf(error);
    if (!(error instanceof Error) || error.name !== 'ReplyError') throw error;
    throw new BackendRefusal(`${server} does not give database ${database}: ${why}${remedyClause(error, REMEDIES)}`);
  }
}

/** The database that a client of ioredis believes to be in; node-redis does not connect without the one it wants. */
function databaseOf(node: RedisNode): number | undefined {
  return (Reflect.get(node, 'condition') as { select?: number } | null | undefined)?.select;
}

interface ServerCheck {
  readonly rights: Rights;
  readonly report: (notice: Notice) => void;
  readonly inCluster: boolean;
}

async function checkEviction(node: RedisNode, server: string, report: (notice: Notice) => void): Promise<void> {
  let memory: string;
  try {
    memory = await node.info('memory');
  } catch (error) {
    const why = messageOf(error);
    report({ level: 'debug', message: `${server} does not tell whether it may evict locks: INFO answers ${why}` });
    return;
  }
  const notice = evictionNotice(node, memory);
  if (notice) report(notice);
}

function evictionNotice(node: RedisNode, memory: string): Notice | undefined {
  const server = serverOf(node);
  const policy = /^maxmemory_policy:([\w-]+)/m.exec(memory)?.[1];
  if (policy === undefined) {
    return {
      level: 'debug',
      message: `${server} does not tell whether it may evict locks: INFO has no maxmemory_policy`,
    };
  }
  if (policy === 'noeviction') return undefined;
  const unlimited = /^maxmemory:0\r?$/m.test(memory);
  const remedy =
    'set it to noeviction (CONFIG SET maxmemory-policy noeviction), or keep the locks on a Redis of their own';
  const problem = `may evict held locks, as its maxmemory-policy is ${policy}`;
  const message = unlimited
    ? `${server} has no maxmemory and evicts nothing; with one it ${problem}: ${remedy}`
    : `${server} ${problem}: ${remedy}`;
  return { level: unlimited ? 'debug' : 'warn', message };
}

/**
 * Keys in two slots, which only a server that is no node of a Cluster takes in one command: the calls of several names
 * go in one. The probes use those of the first slot.
 */
function keysOfTwoSlots({ keyPrefix = '' }: RedisNode['options'], rights: Rights): readonly string[] {
  const slotOf = ([key]: readonly string[]) => calculateSlot(keyPrefix + key);
  const keys = rights.keys();
  // A hash tag in the `keyPrefix` of the client keeps all keys in one slot.
  for (let tries = 0; tries < 10; tries++) {
    const others = rights.keys();
    if (slotOf(others) !== slotOf(keys)) return [...keys, ...others];
  }
  return keys;
}

/** Keys in a slot of this node; `undefined` when it has no slots. */
function keysOn(
  { options: { keyPrefix = '' }, slots }: RedisCluster,
  { options }: RedisNode,
  rights: Rights,
): readonly string[] | undefined {
  const address = addressOf(options);
  for (let tries = 0; tries < MOST_NAMES; tries++) {
    const keys = rights.keys().map((key) => keyPrefix + key);
    if (slots[calculateSlot(keys[0] as string)]?.[0] === address) return keys;
  }
  return undefined;
}

/** How many names are tried at most to find one in a slot of the node. */
const MOST_NAMES = 2_000;

const NO_WRITES = /READONLY|OOM|MISCONF|NOREPLICAS/;
/** A client of a Cluster follows these. */
const ELSEWHERE = /MOVED|CLUSTERDOWN/;
/**
 * What passes by itself, or follows from what the check reports already: a script that is not known yet, another key
 * under the name, a key that was not written. The check reports any other refusal, whatever its reason.
 */
const PASSES = /^(LOADING|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|MOVED|ASK|BUSY|WRONGTYPE|NOSCRIPT|ERR no such key)\b/;
/** What a node of a Cluster answers to keys of two slots. */
const TWO_SLOTS = /^CROSSSLOT/;

/**
 * Tries what a part of the library needs, and collects the rights that an ACL user lacks and other refusals of Redis.
 */
class MissingRights {
  /** What Redis refuses for another reason than a missing right. */
  readonly other = new Set<string>();
  /** What Redis refuses for a reason that is not known here: a command that is renamed or disabled, a proxy. */
  readonly refused: { readonly command: string; readonly text: string }[] = [];
  /** The refusal of a node of a Cluster whose client is not that of the Cluster. */
  ofCluster: string | undefined;
  private readonly commands = new Set<string>();
  private keys = false;
  private channels = false;

  constructor(
    private readonly node: RedisNode,
    private readonly rights: Rights,
    /** Whether the node belongs to a client of a Cluster. */
    private readonly inCluster: boolean,
  ) {}

  /** Whether nothing works without these rights. Without messages, waiters only get their lock later. */
  get vital(): boolean {
    return this.keys || [...this.commands].some((command) => !isOfMessages(command));
  }

  get any(): boolean {
    return this.keys || this.channels || this.commands.size > 0;
  }

  /** The missing rights, in the syntax of ACL SETUSER. */
  get grants(): string {
    const { keyPatterns, messages } = this.rights;
    const commands = [...this.commands].map((command) => `+${command}`);
    const keys = this.keys ? keyPatterns.map((pattern) => `~${pattern}`) : [];
    const channels = this.channels && messages ? [`&${messages.channelPattern}`] : [];
    return [...commands, ...keys, ...channels].join(' ');
  }

  /** `keys` must lie in slots of the node. */
  async look(keys: readonly string[]): Promise<void> {
    const { messages, commands = [] } = this.rights;
    await Promise.all([
      this.tryScripts(keys),
      messages && this.trySubscribing(messages.channel),
      ...commands.map(([command, ...args]) => this.tried(command, () => this.node.call(command, args))),
    ]);
  }

  private note(command: string, text: string): void {
    if (TWO_SLOTS.test(text)) this.ofCluster = text;
    else if (!NO_RIGHT.test(text)) {
      if (NO_WRITES.test(text) || (!this.inCluster && ELSEWHERE.test(text))) this.other.add(text);
      else if (!PASSES.test(text)) this.noteRefused(command.toLowerCase(), text);
    } else if (/channel/.test(text)) this.channels = true;
    else if (/\bkeys?\b/.test(text)) this.keys = true;
    else this.commands.add(command.toLowerCase());
  }

  private noteRefused(command: string, text: string): void {
    const short = text.replace(/, with args beginning with:[^]*| script: [^]*/, '').slice(0, 100);
    if (!this.refused.some((known) => known.command === command)) this.refused.push({ command, text: short });
  }

  private async tryScripts(keys: readonly string[]): Promise<void> {
    const { probes, messages } = this.rights;
    const args = [JSON.stringify(probes), ...(messages ? [messages.channel] : []), 'check'];
    const byDigest = await this.tried('evalsha', () => this.node.evalsha(PROBE.sha1, keys.length, ...keys, ...args));
    const byText = await this.tried('eval', () => this.node.eval(PROBE.lua, keys.length, ...keys, ...args));
    const [, failed = []] = (byDigest ?? byText ?? []) as [id?: string, failed?: readonly string[]];
    for (let index = 0; index < failed.length; index += 2) this.note(failed[index] ?? '', failed[index + 1] ?? '');
  }

  /** Asks with ACL DRYRUN (Redis 7) if the user may; otherwise subscribes on a connection of its own. */
  private async trySubscribing(channel: string): Promise<void> {
    // ioredis stores null when no username is given.
    const username = this.node.options.username ?? 'default';
    try {
      const answer = String(await this.node.call('ACL', ['DRYRUN', username, 'SUBSCRIBE', channel]));
      if (answer !== 'OK') this.note('subscribe', answer);
    } catch {
      const connection = connectionForMessages(this.node, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
      await this.tried('subscribe', async () => connection?.subscribe(channel));
      connection?.disconnect();
    }
  }

  private async tried<T>(command: string, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      // A connection that broke says nothing of the server's rules.
      if (error instanceof Error && error.name === 'ReplyError') this.note(command, error.message);
      return undefined;
    }
  }
}

/**
 * Tries all commands, also after one has failed.
 *
 * KEYS: the keys that the commands refer to by number. ARGV: 1 the commands as JSON, 2 a channel if there is one.
 * Returns the name and the error of each that failed, one after the other.
 */
const PROBE = redisScript(`
local failed = {}
local try = function(command)
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then
    failed[#failed + 1] = command[1]
    failed[#failed + 1] = reply.err
  end
end
for _, probe in ipairs(cjson.decode(ARGV[1])) do
  local command = {}
  for place, part in ipairs(probe) do command[place] = type(part) == 'number' and KEYS[part] or part end
  try(command)
end
if ARGV[2] then try({'PUBLISH', ARGV[2], ''}) end
return failed
`);
