/**
 * The settings of a session, in place of those of its user and database. The keep-alives make the server notice a
 * process whose machine is gone, after about 25 s: only then it frees the locks. The time limits, in ms, fail a
 * statement that waits for a table before the session counts as dead, and end no idle session. Conflicting writes must
 * wait for each other, and not fail as they do above "read committed".
 */
const VALUES: Readonly<Record<string, string>> = {
  tcp_keepalives_idle: '10',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
  default_transaction_isolation: 'read committed',
  lock_timeout: '1000',
  statement_timeout: '2000',
  transaction_timeout: '0',
  idle_session_timeout: '0',
  idle_in_transaction_session_timeout: '0',
};

/** Sets those that the version of the server knows. */
export const SETTINGS = `SELECT set_config(name, value, false) FROM pg_settings JOIN (VALUES ${Object.entries(VALUES)
  .map(([name, value]) => `('${name}', '${value}')`)
  .join(', ')}) AS wanted (name, value) USING (name)`;
