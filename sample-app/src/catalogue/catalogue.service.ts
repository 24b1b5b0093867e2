import { Inject, Injectable } from '@nestjs/common';
import { DistributedLock } from 'nest-redis-lock';
import { Database } from '../database/database.js';
import { PRIMITIVE_BACKEND, SETTINGS, type Settings } from '../settings.js';
import type { CatalogueEntryDto, ImportDto } from './catalogue.dto.js';

const PAGE = 10;
/** Long, because an import has no fencing token: a process that stands still for less than this loses nothing. */
const LEASE = '30s';

/**
 * The prices of all products. An import writes page by page, and a read reads page by page, as they do where one
 * transaction cannot hold them: a large file, or several stores. Readers hold the lock together, an import alone.
 *
 * An import whose process dies leaves the pages that it wrote, until it is sent again.
 */
@Injectable()
export class CatalogueService {
  constructor(
    @Inject(Database) private readonly database: Database,
    @Inject(SETTINGS) private readonly settings: Settings,
  ) {}

  import(given: ImportDto): Promise<{ imported: number }> {
    return this.unlocked ? this.write(given) : this.importAlone(given);
  }

  read(): Promise<CatalogueEntryDto[]> {
    return this.unlocked ? this.pages() : this.readTogether();
  }

  @DistributedLock('catalogue', { ttl: LEASE, wait: '20s', backend: PRIMITIVE_BACKEND })
  async importAlone(given: ImportDto): Promise<{ imported: number }> {
    return this.write(given);
  }

  @DistributedLock('catalogue', { mode: 'read', ttl: LEASE, wait: '20s', backend: PRIMITIVE_BACKEND })
  async readTogether(): Promise<CatalogueEntryDto[]> {
    return this.pages();
  }

  private get unlocked(): boolean {
    return this.settings.without?.has('read-write-lock') ?? false;
  }

  private async write({ version, prices }: ImportDto): Promise<{ imported: number }> {
    for (let start = 0; start < prices.length; start += PAGE) {
      const page = prices.slice(start, start + PAGE);
      await this.database.query(
        `INSERT INTO catalogue (sku, price, version)
         SELECT DISTINCT ON (sku) sku, price, $3 FROM unnest($1::text[], $2::int[]) AS page (sku, price)
         ON CONFLICT (sku) DO UPDATE SET price = excluded.price, version = excluded.version`,
        [page.map(({ sku }) => sku), page.map(({ price }) => price), version],
      );
    }
    return { imported: prices.length };
  }

  private async pages(): Promise<CatalogueEntryDto[]> {
    const entries: CatalogueEntryDto[] = [];
    for (;;) {
      const { rows } = await this.database.query<CatalogueEntryDto>(
        'SELECT sku, price, version FROM catalogue WHERE sku > $1 ORDER BY sku LIMIT $2',
        [entries.at(-1)?.sku ?? '', PAGE],
      );
      entries.push(...rows);
      if (rows.length < PAGE) return entries;
    }
  }
}
