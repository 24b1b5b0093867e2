import type {
  AcquireAnswer,
  AcquireRequest,
  KeepRequest,
  LabelRequest,
  LockBackend,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
} from '../../../contracts/lock-backend.js';
import type { MysqlLink } from '../connection/mysql-link.js';
import { LockTable, type LockTableSettings } from '../rows/lock-table.js';
import { labelIdOf, rowIdOf } from '../rows/row-id.js';
import { insertIdOf, RowStatements, takenOf, type RowTicket, type StateRow } from '../rows/row-statements.js';
import { processOf } from '../rows/waiting-marks.js';
import { LeaseRenewals } from './lease-renewals.js';

/** A name that does not occur: `start` takes it to see whether the user may do all that locks need. */
const TRIAL = 'nest-redis-lock:start';
/** How often `forceRelease` tries to free a name whose owner changes meanwhile. */
const FORCED_TRIES = 20;

/** Keeps each lock in a row, whose lease ends by the clock of the server. */
export class LeaseTableBackend implements LockBackend {
  readonly name = 'mysql';
  readonly traits: LockTraits = { lease: 'ttl', fencing: 'strict', severalKeys: false, leastLease: 1 };
  private readonly table: LockTable<RowStatements>;
  private readonly renewals: LeaseRenewals;

  constructor(
    private readonly link: MysqlLink,
    settings: LockTableSettings,
  ) {
    this.table = new LockTable(link, new RowStatements(settings.table), settings);
    this.renewals = new LeaseRenewals(link, this.table);
  }

  async acquire({ prefix, names, ticket, ttl, leastToken }: AcquireRequest): Promise<AcquireAnswer> {
    const [name] = names as readonly [string];
    this.table.startSweeping();
    const row = { id: rowIdOf(prefix, name), ticket };
    const shown = prefix === undefined ? name : `${prefix}:${name}`;
    const taken = takenOf(await this.table.change(this.table.statements.take(row, shown, ttl, leastToken)));
    if ('tokens' in taken) {
      // A process that waits is known by its tries only: without a mark, one may be between two of them.
      return { status: 'granted', remaining: ttl, tokens: taken.tokens, waiting: taken.waiting || undefined };
    }
    const { statements } = this.table;
    const [[last]] = await Promise.all([
      this.table.rows<Pick<StateRow, 'owner'>>(statements.lastOwner(row.id)),
      this.table.change(statements.mark(row)),
    ]);
    return { status: 'busy', name, owner: last?.owner.toString() ?? '', remaining: taken.remaining };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return this.renewals.renew(requests);
  }

  release(request: TicketRequest): Promise<ReleaseAnswer> {
    return this.endEach(request, async (row) => {
      const { affectedRows } = await this.table.change(this.table.statements.free(row));
      return affectedRows > 0;
    });
  }

  keep({ rest, ...request }: KeepRequest): Promise<ReleaseAnswer> {
    return this.endEach(request, async (row) => {
      return insertIdOf(await this.table.change(this.table.statements.shorten(row, rest))) > 0;
    });
  }

  async mint({ prefix, name, ticket, leastToken }: MintRequest): Promise<TokenRange | null> {
    const row = { id: rowIdOf(prefix, name), ticket };
    const minted = takenOf(await this.table.change(this.table.statements.mint(row, leastToken)));
    return 'tokens' in minted ? minted.tokens : null;
  }

  async inspect({ prefix, name }: NameRequest): Promise<LockState | null> {
    const state = await this.stateOf(rowIdOf(prefix, name));
    if (!state) return null;
    const owner = state.owner.toString();
    const label = (await this.stateOf(labelIdOf(prefix, processOf(owner))))?.name;
    const { remaining: ttl, token: fencingToken } = state;
    return { owner, ...(label !== undefined && { label }), ttl, fencingToken, waiting: 0 };
  }

  async label({ prefix, process, label, ttl }: LabelRequest): Promise<void> {
    const id = labelIdOf(prefix, process);
    const { statements } = this.table;
    await this.table.change(ttl === 0 ? statements.dropText(id) : statements.keepText(id, label, ttl));
  }

  async forceRelease({ prefix, name }: NameRequest): Promise<string | null> {
    const id = rowIdOf(prefix, name);
    for (let tries = 0; tries < FORCED_TRIES; tries += 1) {
      const ticket = (await this.stateOf(id))?.owner.toString();
      if (ticket === undefined) return null;
      const { affectedRows } = await this.table.change(this.table.statements.free({ id, ticket }));
      if (affectedRows > 0) return ticket;
    }
    throw new Error(
      `"${name}" had another owner at each of ${FORCED_TRIES} tries to free it: free it again; or a connection of the ` +
        'pool reads old rows inside a transaction: commit before you release a connection',
    );
  }

  async start(request: StartRequest): Promise<void> {
    const trial = { names: [TRIAL], ticket: `${TRIAL}:${process.pid}` };
    try {
      const { status } = await this.acquire({ ...trial, ttl: 1_000 });
      if (status === 'granted') await this.release(trial);
      await this.table.start(request, rowIdOf(undefined, TRIAL));
    } catch (error) {
      throw this.diagnose(error);
    }
  }

  async ping(): Promise<void> {
    try {
      await this.link.rows('SELECT 1');
    } catch (error) {
      throw this.diagnose(error);
    }
  }

  diagnose(error?: unknown): Error | undefined {
    return this.link.diagnose(error);
  }

  close(): Promise<void> {
    this.table.stopSweeping();
    return this.link.close();
  }

  private async stateOf(id: string): Promise<StateRow | undefined> {
    return (await this.table.rows<StateRow>(this.table.statements.state(id)))[0];
  }

  /** Ends the ticket's ownership of each name by `end`, which answers whether it had it. */
  private async endEach(
    { prefix, names, ticket }: TicketRequest,
    end: (row: RowTicket) => Promise<boolean>,
  ): Promise<ReleaseAnswer> {
    const each = await Promise.all(
      names.map(async (name): Promise<ReleaseAnswer['status']> => {
        const row = { id: rowIdOf(prefix, name), ticket };
        if (await end(row)) return 'released';
        return (await this.stateOf(row.id)) ? 'taken' : 'gone';
      }),
    );
    const status = (['taken', 'gone'] as const).find((outcome) => each.includes(outcome)) ?? 'released';
    return { status, resent: false };
  }
}
