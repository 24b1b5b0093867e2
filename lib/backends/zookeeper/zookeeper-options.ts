import { timer, type Check, type Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { nested, OptionTable, settingOf } from '../../options/option-table.js';

/** The user of the digest scheme. All processes that share locks need the same one. */
export interface ZooKeeperCredentials {
  user: string;
  password: string;
}

/** The options of `zookeeper()`. */
export interface ZooKeeperOptions {
  /**
   * The servers of one ensemble: `'zk1:2181,zk2:2181,zk3:2181'` or a list of them. A path at the end of the text
   * (`'zk1:2181/app'`) is a chroot: it must exist, and all nodes lie below it.
   */
  servers: string | readonly string[];
  /**
   * How long the servers keep the locks of a process that they do not hear from. The servers may grant less or more:
   * from 2 to 20 times their `tickTime`, unless they are configured otherwise. At least 1 s.
   * @default '10s'
   */
  sessionTimeout?: Duration;
  /**
   * The node below which all locks lie. The backend creates it.
   * @default '/locks'
   */
  root?: string;
  /** Adds a user of the digest scheme to the session. Only this user may then read and change the nodes of locks. */
  auth?: ZooKeeperCredentials;
  /**
   * Is added to every fencing token: give the largest token issued so far when locks move here from another store,
   * whose tokens were larger. A whole number; all processes need the same one.
   * @default 0
   */
  firstToken?: number;
}

export interface ZooKeeperSettings {
  /** `host:port`, separated by commas. */
  readonly servers: string;
  /** Begins with `/`; empty when there is none. */
  readonly chroot: string;
  readonly sessionTimeout: number;
  readonly root: string;
  readonly auth: ZooKeeperCredentials | undefined;
  readonly firstToken: number;
}

const SERVER = /^[^\s/:,@]+(?::(?<port>\d{1,5}))?$/;
const DEFAULT_PORT = 2181;
// ZooKeeper takes no control characters in a path.
const PATH = /^(\/[^/\s\p{Cc}]+)+$/u;

const setting = settingOf<ZooKeeperSettings>();
const credentialsSetting = settingOf<ZooKeeperCredentials>();

/** Never shows the value: it may be a password. */
const secretText: Check<string> = (value, option, checks) => {
  if (typeof value !== 'string' || value === '') throw checks.conflict(`Option "${option}" is no text; give one`);
  return value;
};

const userName: Check<string> = (value, option, checks) => {
  if (typeof value !== 'string' || !/^[^\s:]+$/.test(value)) {
    throw checks.refused(option, value, 'a name without ":" and blanks');
  }
  return value;
};

const path: Check<string> = (value, option, checks) => {
  const valid = typeof value === 'string' && isPath(value) && !/^\/zookeeper(\/|$)/.test(value);
  if (!valid) throw checks.refused(option, value, 'a path such as "/locks", which does not lie in "/zookeeper"');
  return value;
};

const tokenOffset: Check<number> = (value, option, checks) => {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
  throw checks.refused(option, value, 'a whole number from 0 on');
};

const CREDENTIALS = new OptionTable<ZooKeeperCredentials, ZooKeeperCredentials>(
  lockOption,
  'option',
  'zookeeper.auth.',
  { user: '', password: '' },
  { user: credentialsSetting('user', userName), password: credentialsSetting('password', secretText) },
);

const OPTIONS = new OptionTable<ZooKeeperOptions, ZooKeeperSettings>(
  lockOption,
  'option',
  'zookeeper.',
  { servers: '', chroot: '', sessionTimeout: 10_000, root: '/locks', auth: undefined, firstToken: 0 },
  {
    servers: (settings, value, option) => {
      const [servers, chroot] = serversOf(value, option);
      settings.servers = servers;
      settings.chroot = chroot;
    },
    sessionTimeout: setting('sessionTimeout', timer(1_000)),
    root: setting('root', path),
    auth: setting('auth', nested(CREDENTIALS, '{ user, password }')),
    firstToken: setting('firstToken', tokenOffset),
  },
);

/** @throws LockConfigError */
export function zooKeeperSettings(given: string | ZooKeeperOptions): ZooKeeperSettings {
  if (typeof given !== 'string') lockOption.object('zookeeper', given, `servers such as 'zk1:2181,zk2:2181'`);
  const settings = OPTIONS.settings(typeof given === 'string' ? { servers: given } : given);
  if (settings.servers === '') throw refusedServers('zookeeper.servers', undefined);
  for (const part of ['user', 'password'] as const) {
    if (settings.auth?.[part] === '') throw lockOption.conflict(`Option "zookeeper.auth.${part}" is missing; give it`);
  }
  return settings;
}

function serversOf(value: unknown, option: string): [servers: string, chroot: string] {
  const text = Array.isArray(value) ? value.join(',') : value;
  if (typeof text !== 'string') throw refusedServers(option, value);
  const slash = text.indexOf('/');
  const servers = slash === -1 ? text : text.slice(0, slash);
  const chroot = slash === -1 ? '' : text.slice(slash).replace(/\/$/, '');
  const valid = servers.split(',').every(isServer) && (chroot === '' || isPath(chroot));
  if (!valid) throw refusedServers(option, value);
  return [servers, chroot];
}

/** The client library throws in a callback of its own for a port that no connection can have. */
function isServer(text: string): boolean {
  const match = SERVER.exec(text);
  const port = Number(match?.groups?.['port'] ?? DEFAULT_PORT);
  return match !== null && port > 0 && port < 65_536;
}

function isPath(value: string): boolean {
  return PATH.test(value) && !value.split('/').some((part) => part === '.' || part === '..');
}

function refusedServers(option: string, value: unknown): Error {
  return lockOption.refusedConnection(
    option,
    value,
    `servers such as 'zk1:2181,zk2:2181', or one with a chroot: 'zk1:2181/app'`,
  );
}
