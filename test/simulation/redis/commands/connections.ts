// Connections, messages, scripts, and what a server tells of itself.

import { createHash } from 'node:crypto';
import type { RedisModel } from '../redis-model.js';
import { ErrorReply, OK, Refused, type Reply, StatusReply } from '../replies.js';
import { type Commands, notModelled, whole } from './command.js';

function runScript(redis: RedisModel, text: string, [count, ...rest]: readonly string[]): Reply {
  const keys = whole(count);
  if (keys > rest.length) return new ErrorReply("ERR Number of keys can't be greater than number of args");
  return redis.runScript(text, rest.slice(0, keys), rest.slice(keys));
}

/** By text: each process of each world loads the same few. */
const digests = new Map<string, string>();

function addScript(redis: RedisModel, text: string): string {
  const sha1 = digests.get(text) ?? createHash('sha1').update(text, 'latin1').digest('hex');
  digests.set(text, sha1);
  redis.scripts.set(sha1, text);
  return sha1;
}

export const CONNECTION_COMMANDS: Commands = {
  ping: (_redis, [text], connection) => {
    if (connection?.protocol !== 3 && connection?.channels?.size) return ['pong', text ?? ''];
    return text ?? new StatusReply('PONG');
  },
  echo: (_redis, [text = '']) => text,
  quit: () => OK,
  select: (_redis, [database]) => (database === '0' ? OK : notModelled('a second database')),
  readonly: () => OK,
  hello: (redis, [version], connection) => {
    if (version !== undefined && version !== '2' && version !== '3') {
      return new ErrorReply('NOPROTO unsupported protocol version');
    }
    if (!connection) return new ErrorReply('ERR This Redis command is not allowed from script');
    if (version !== undefined) connection.protocol = version === '3' ? 3 : 2;
    return new Map<string, Reply>([
      ['server', 'redis'],
      ['version', redis.version],
      ['proto', connection.protocol ?? 2],
      ['id', redis.idOf(connection)],
      ['mode', 'standalone'],
      ['role', redis.readOnly ? 'slave' : 'master'],
      ['modules', []],
    ]);
  },
  client: (redis, [what = '', ...args], connection) => {
    switch (what.toLowerCase()) {
      case 'id':
        return connection ? redis.idOf(connection) : 0;
      case 'setinfo':
        // Since 7.2.
        return new ErrorReply("ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.");
      case 'setname':
        return OK;
      case 'tracking':
        if (connection) redis.tracking.follow(redis.idOf(connection), args);
        return OK;
      default:
        return notModelled(`CLIENT ${what}`);
    }
  },
  acl: (_redis, [what = '']) => {
    if (what.toLowerCase() === 'whoami') return 'default';
    return what.toLowerCase() === 'dryrun' ? OK : notModelled(`ACL ${what}`);
  },
  info: (redis) => redis.info(),
  role: (redis) => (redis.readOnly ? ['slave', '127.0.0.1', 6379, 'connected', 0] : ['master', 0, []]),
  /** At once, also where fewer have confirmed than were asked for. */
  wait: (redis) => redis.replicas,
  time: ({ clock }) => clock,
  dbsize: (redis) => redis.data.size,
  flushall: (redis) => {
    redis.data.clear();
    redis.tracking.allChanged();
    return OK;
  },

  subscribe: (redis, channels, connection) => {
    if (connection) for (const each of channels) redis.subscribe(connection, each);
    return undefined;
  },
  unsubscribe: (redis, channels, connection) => {
    if (!connection) return undefined;
    const all = channels.length > 0 ? channels : [...(connection.channels ?? [])];
    for (const each of all) redis.unsubscribe(connection, each);
    if (all.length === 0) connection.push(['unsubscribe', null, 0]);
    return undefined;
  },
  publish: (redis, [channel = '', message = '']) => redis.publish(channel, message),

  script: (redis, [what = '', ...texts]) => {
    switch (what.toLowerCase()) {
      case 'load':
        return addScript(redis, texts[0] ?? '');
      case 'exists':
        return texts.map((sha1) => Number(redis.scripts.has(sha1.toLowerCase())));
      case 'flush':
        redis.scripts.clear();
        return OK;
      default:
        return notModelled(`SCRIPT ${what}`);
    }
  },
  eval: (redis, [text = '', ...rest]) => {
    addScript(redis, text);
    return runScript(redis, text, rest);
  },
  evalsha: (redis, [sha1 = '', ...rest]) => {
    const text = redis.scripts.get(sha1.toLowerCase());
    if (text === undefined) throw new Refused('NOSCRIPT No matching script. Please use EVAL.');
    return runScript(redis, text, rest);
  },
};

export const NOT_IN_SCRIPTS: ReadonlySet<string> = new Set([
  'acl',
  'client',
  'eval',
  'evalsha',
  'hello',
  'quit',
  'script',
  'subscribe',
  'unsubscribe',
  'wait',
]);

/** What a connection of RESP2 may do while it is subscribed. */
export const WHILE_SUBSCRIBED: ReadonlySet<string> = new Set(['subscribe', 'unsubscribe', 'ping', 'quit']);
