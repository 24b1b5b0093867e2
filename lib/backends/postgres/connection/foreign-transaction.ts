import type { Pool, QueryArrayConfig, QueryArrayResult } from 'pg';
import type { Done } from './kept-connection.js';

/**
 * Sends a statement over the application's pool. A connection may have come back to it while its transaction was open:
 * what the statement did would be undone with that transaction. Such a connection is closed, and the call fails.
 */
export function queryOutsideTransactions(pool: Pool, query: QueryArrayConfig, done: Done): void {
  pool.connect((error, client, release) => {
    if (!client) return done(error, NOTHING);
    let status = OUTSIDE;
    let ended = false;
    const note = (message: { readonly status: string }) => (status = message.status);
    const end: Done = (failure, result) => {
      if (ended) return;
      ended = true;
      client.off('error', onError);
      client.connection?.off('readyForQuery', note);
      const refusal = failure ?? (status === OUTSIDE ? undefined : inTransaction());
      release(refusal);
      done(refusal, result);
    };
    const onError = (failure: Error) => end(failure, NOTHING);
    client.once('error', onError);
    // The client calls back in its own listener, which would run first.
    client.connection?.prependOnceListener('readyForQuery', note);
    client.query<unknown[]>(query, end);
  });
}

/** What the server says of a connection without a transaction. */
const OUTSIDE = 'I';
const NOTHING: QueryArrayResult<unknown[]> = { command: '', rowCount: 0, oid: 0, fields: [], rows: [] };

function inTransaction(): Error {
  return new Error(
    'a connection of the pool came back while its transaction was open; COMMIT or ROLLBACK before "release()"',
  );
}
