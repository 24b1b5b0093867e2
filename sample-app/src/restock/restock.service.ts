import { setTimeout as sleep } from 'node:timers/promises';
import {
  HttpStatus,
  Inject,
  Injectable,
  Logger,
  NotFoundException,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { CacheEvict, DistributedLock, LeaderElection } from 'nest-redis-lock';
import { Database } from '../database/database.js';
import { ShopException } from '../http/error-body.js';
import type { LevelDto } from '../products/product.dto.js';
import { LOCK_TTL, PRIMITIVE_BACKEND, RESTOCK_INTERVAL, SETTINGS, type Settings } from '../settings.js';

/** Below the term of every leader. */
const NO_TERM = 0;

/**
 * Orders more of the products whose stock is below their level. One process does it, the leader: two that see the same
 * shortage would both order what is missing.
 *
 * A leader that stood still may go on after another one was elected. It presents its term with each restock, and the
 * database refuses a term below the last one.
 */
@Injectable()
export class RestockService implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new Logger(RestockService.name);
  private readonly ending = new AbortController();

  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(LeaderElection) private readonly election: LeaderElection,
    @Inject(SETTINGS) private readonly settings: Settings,
  ) {}

  onApplicationBootstrap(): void {
    if (this.settings.without?.has('leader-election')) {
      this.restockUntil(this.ending.signal, NO_TERM).catch((error: unknown) => this.logger.error(error));
      return;
    }
    this.election.join('restock', {
      lease: this.settings.lockTtl ?? LOCK_TTL,
      backend: PRIMITIVE_BACKEND,
      // An error ends the term: the election logs it, and another process may try.
      onElected: (signal, term) => this.restockUntil(signal, term),
    });
  }

  beforeApplicationShutdown(): void {
    this.ending.abort();
  }

  async keep(sku: string, { level }: LevelDto): Promise<LevelDto> {
    const { rowCount } = await this.database.query(
      `INSERT INTO stock_levels (sku, level) SELECT sku, $2 FROM products WHERE sku = $1
       ON CONFLICT (sku) DO UPDATE SET level = excluded.level`,
      [sku, level],
    );
    if (rowCount === 0) throw new NotFoundException(`No product ${sku}`);
    return { level };
  }

  /** @throws StaleTermException when a later leader has restocked; nothing was added then */
  @CacheEvict('product:<0>', { when: 'both' })
  @DistributedLock('stock:<0>')
  async restock(sku: string, quantity: number, term: number): Promise<void> {
    await this.database.transaction(async (sql) => {
      const { rowCount } = await sql.query('UPDATE restock_fence SET term = $1 WHERE term <= $1', [term]);
      if (rowCount === 0) throw new StaleTermException(term);
      await sql.query('UPDATE products SET stock = stock + $2, version = version + 1 WHERE sku = $1', [sku, quantity]);
      await sql.query('INSERT INTO restocks (sku, quantity, term, process) VALUES ($1, $2, $3, $4)', [
        sku,
        quantity,
        term,
        process.pid,
      ]);
    });
  }

  private async restockUntil(signal: AbortSignal, term: number): Promise<void> {
    const interval = this.settings.restockInterval ?? RESTOCK_INTERVAL;
    while (!signal.aborted) {
      for (const { sku, missing } of await this.shortages()) {
        if (!signal.aborted) await this.restock(sku, missing, term);
      }
      await sleep(interval, undefined, { signal }).catch(() => {});
    }
  }

  private async shortages(): Promise<{ sku: string; missing: number }[]> {
    const { rows } = await this.database.query<{ sku: string; missing: number }>(
      'SELECT sku, level - stock AS missing FROM stock_levels JOIN products USING (sku) WHERE stock < level',
    );
    return rows;
  }
}

/** A later leader has restocked: the database refuses this one. */
export class StaleTermException extends ShopException {
  constructor(term: number) {
    super(HttpStatus.CONFLICT, 'STALE_TERM', `A leader of a term after ${term} has restocked`);
  }
}
