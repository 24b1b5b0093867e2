import { type Duration, timer, type Check } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import type { EtcdTls } from './etcd-endpoint.js';

/** The options of `etcd()`. */
export interface EtcdOptions {
  /**
   * The client URLs of the members, such as `https://etcd-1:2379`. Requests go to one of them until it fails, and then
   * to the next.
   */
  endpoints: string | readonly string[];
  /** The user, where the cluster asks for one. */
  username?: string;
  /** The password of the user. Never shown in messages. */
  password?: string;
  /** Certificates for `https://` endpoints. */
  tls?: EtcdTls;
  /**
   * How long etcd keeps the locks of a process that no longer answers: whole seconds. The lease of the process is
   * renewed every third of it. etcd grants no less than about 1.5 election timeouts (2 s by default).
   * @default '10s'
   */
  ttl?: Duration;
  /**
   * Fencing tokens start above this number. Give the largest token of the store that you move from, so that guarded
   * rows accept the tokens of etcd. Kept in etcd, and never lowered.
   * @default 0
   */
  firstToken?: number;
  /**
   * How long one endpoint may take to answer before the next one is asked.
   * @default 500
   */
  callTimeout?: Duration;
  /**
   * What all keys begin with. A user of etcd needs the right to read and to write them.
   * @default 'nest-redis-lock/'
   */
  root?: string;
}

export interface EtcdSettings {
  readonly endpoints: readonly string[];
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly tls: EtcdTls | undefined;
  /** Whole seconds. */
  readonly ttl: number;
  readonly firstToken: number;
  readonly callTimeout: number;
  readonly root: string;
}

/** Tokens stay exact numbers for the life of a cluster: this plus 1,024 for each of its revisions. */
const GREATEST_FIRST_TOKEN = 2 ** 52;

const setting = settingOf<EtcdSettings>();

const text: Check<string> = (value, option) => {
  lockOption.require(
    typeof value === 'string' && value !== '',
    option,
    shown(option, value),
    'a text that is not empty',
  );
  return value as string;
};

const wholeSeconds: Check<number> = (value, option) => {
  const milliseconds = lockOption.timerMilliseconds(option, value, 1_000);
  lockOption.require(milliseconds % 1_000 === 0, option, value, "whole seconds, such as '10s'");
  return milliseconds / 1_000;
};

const firstToken: Check<number> = (value, option) => {
  const valid = Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= GREATEST_FIRST_TOKEN;
  lockOption.require(valid, option, value, `a whole number from 0 to ${GREATEST_FIRST_TOKEN}`);
  return value as number;
};

const urls: Check<readonly string[]> = (value, option) => {
  const given: readonly unknown[] = Array.isArray(value) ? value : [value];
  const remedy = 'the URL of a member, or several, such as "http://127.0.0.1:2379"';
  lockOption.require(given.length > 0, option, '[]', remedy);
  return given.map((each) => {
    const url = typeof each === 'string' && URL.canParse(each) ? new URL(each) : undefined;
    if (url?.username || url?.password) {
      throw lockOption.conflict(`Option "${option}" contains credentials; give them as "username" and "password"`);
    }
    lockOption.requireWholePassword(option, each);
    if (url?.protocol === 'http:' || url?.protocol === 'https:') return each as string;
    throw lockOption.refusedConnection(option, each, remedy);
  });
};

const certificates: Check<EtcdTls> = (value, option) => {
  const remedy = 'certificates: { ca, cert, key }';
  const given = lockOption.object(option, value, remedy);
  for (const name of Object.keys(given)) {
    if (!['ca', 'cert', 'key'].includes(name))
      throw lockOption.unknown('option', `${option}.${name}`, ['ca', 'cert', 'key']);
  }
  return given;
};

const OPTIONS = new OptionTable<EtcdOptions, EtcdSettings>(
  lockOption,
  'option',
  '',
  {
    endpoints: [],
    username: undefined,
    password: undefined,
    tls: undefined,
    ttl: 10,
    firstToken: 0,
    callTimeout: 500,
    root: 'nest-redis-lock/',
  },
  {
    endpoints: setting('endpoints', urls),
    username: setting('username', text),
    password: setting('password', text),
    tls: setting('tls', certificates),
    ttl: setting('ttl', wholeSeconds),
    firstToken: setting('firstToken', firstToken),
    callTimeout: setting('callTimeout', timer(1)),
    root: setting('root', text),
  },
);

/** @throws LockConfigError */
export function etcdSettings(options: EtcdOptions): EtcdSettings {
  const settings = OPTIONS.settings(lockOption.object('etcd', options, 'options such as { endpoints }'));
  lockOption.require(settings.endpoints.length > 0, 'endpoints', options.endpoints, 'the URL of a member, or several');
  if ((settings.username === undefined) !== (settings.password === undefined)) {
    throw lockOption.conflict('Give "username" and "password", or neither');
  }
  if (settings.tls && settings.endpoints.some((url) => url.startsWith('http:'))) {
    throw lockOption.conflict('Option "tls" is given, but an endpoint begins with "http:"; give https:// URLs');
  }
  return settings;
}

/** A password never appears in messages. */
function shown(option: string, value: unknown): unknown {
  return option === 'password' ? '(not shown)' : value;
}
