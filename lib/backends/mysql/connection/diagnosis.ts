/** Why a call to MySQL or MariaDB failed: names the server, the cause and the remedy. */
export class MysqlFailure extends Error {
  override readonly name = 'MysqlFailure';
  /** The code of the cause, such as `ER_LOCK_WAIT_TIMEOUT`. */
  readonly code?: string;

  constructor(message: string, cause?: Error) {
    super(message, cause && { cause });
    const code = cause && codeOf(cause);
    if (code !== undefined) this.code = code;
  }
}

/** What an operator can do about an error. The first pattern that matches its code or message applies. */
const REMEDIES: readonly (readonly [pattern: RegExp, remedy: string])[] = [
  [/ECONNREFUSED/, 'nothing listens there: start the server, or correct host and port'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host name cannot be resolved: correct it'],
  [/ENOENT/, 'the socket does not exist: start the server, or correct "socketPath"'],
  [
    /no connection within/,
    'all of the pool are in use, or the server accepts none: raise "connectionLimit", or see its log',
  ],
  [/ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|did not answer/, 'nothing answers there: check host, port and firewall'],
  [/ER_ACCESS_DENIED_ERROR|ER_ACCESS_DENIED_NO_PASSWORD/, 'correct user and password'],
  [
    /ER_DBACCESS_DENIED_ERROR|ER_TABLEACCESS_DENIED_ERROR|ER_SPECIFIC_ACCESS_DENIED/,
    'grant what docs/guide/mysql.md lists',
  ],
  [/ER_NO_DB_ERROR/, 'give a database in the URL, or "table" as database.table'],
  [/ER_BAD_DB_ERROR/, 'the database does not exist: create it, or correct the URL'],
  [/ER_NO_SUCH_TABLE/, 'create the table with the SQL of docs/guide/mysql.md, or leave out "createTable: false"'],
  [/ER_BAD_FIELD_ERROR/, 'the table has other columns: drop it, or give another "table"'],
  [/ER_LOCK_WAIT_TIMEOUT/, 'another transaction keeps the row locked: find it with SHOW ENGINE INNODB STATUS'],
  [
    /ER_CON_COUNT_ERROR|ER_USER_LIMIT_REACHED|ER_TOO_MANY_USER_CONNECTIONS/,
    'raise max_connections, or lower "connectionLimit"',
  ],
  [
    /ER_OPTION_PREVENTS_STATEMENT|ER_READ_ONLY_MODE|ER_CANT_EXECUTE_IN_READ_ONLY/,
    'the server is read-only: give the address of the primary',
  ],
  [
    /ER_NOT_SUPPORTED_YET|ER_UNKNOWN_ERROR.*GET_LOCK|pxc_strict_mode/,
    'GET_LOCK does not work on a Galera cluster: use leaseTable(...)',
  ],
  [/PROTOCOL_CONNECTION_LOST|ECONNRESET|EPIPE|closed state/, 'the connection was closed: see the log of the server'],
  [/ER_SERVER_SHUTDOWN/, 'the server shuts down: wait until it is back'],
];

/** Errors of one row, for which the server refuses a statement on several. */
const OF_ONE_ROW: ReadonlySet<string | undefined> = new Set([
  'ER_LOCK_DEADLOCK',
  'ER_LOCK_WAIT_TIMEOUT',
  'ER_DATA_TOO_LONG',
]);

/** Whether a statement on several rows may succeed for each of the others. */
export function isOfOneRow(error: unknown): boolean {
  return OF_ONE_ROW.has(codeOf(error));
}

/** Whether the statement waited for a row that another transaction keeps locked. */
export function isLockedRow(error: unknown): boolean {
  return codeOf(error) === 'ER_LOCK_WAIT_TIMEOUT';
}

/** For a statement that is not sent, because too many others wait for its row. */
export function rowStaysLocked(waiting: number): Error {
  return Object.assign(new Error(`${waiting} statements wait for the row`), { code: 'ER_LOCK_WAIT_TIMEOUT' });
}

/** One line that names the server, the cause and the remedy. */
export function diagnose(server: string, error: unknown): MysqlFailure {
  if (error instanceof MysqlFailure) return error;
  const cause = error instanceof Error ? error : new Error(String(error));
  const code = codeOf(cause);
  const text = (cause.message || String(code)).split('\n', 1)[0] as string;
  const shown = code === undefined || text.includes(code) ? text : `${text} (${code})`;
  const remedy = REMEDIES.find(([pattern]) => pattern.test(`${code ?? ''} ${cause.message}`))?.[1];
  return new MysqlFailure(`${server}: ${shown}${remedy === undefined ? '' : `; ${remedy}`}`, cause);
}

export function codeOf(error: unknown): string | undefined {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : undefined;
}
