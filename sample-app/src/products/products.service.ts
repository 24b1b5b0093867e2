import { ConflictException, HttpStatus, Inject, Injectable, NotFoundException } from '@nestjs/common';
import pg from 'pg';
import { CacheEvict, Cached, DistributedLock } from 'nest-redis-lock';
import { Database } from '../database/database.js';
import { ShopException } from '../http/error-body.js';
import type { CreateProductDto, ProductDto } from './product.dto.js';

const NUMERIC_VALUE_OUT_OF_RANGE = '22003';
/** The most that the column holds. */
const MOST_STOCK = 2 ** 31 - 1;

@Injectable()
export class ProductsService {
  constructor(@Inject(Database) private readonly database: Database) {}

  /** Evicts also after an error: the database may have carried out the insert, and an absent product is cached, too. */
  @CacheEvict('product:<0.sku>', { when: 'both' })
  async create({ sku, name = sku, stock }: CreateProductDto): Promise<ProductDto> {
    const { rows } = await this.database.query<ProductDto>(
      'INSERT INTO products (sku, name, stock) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING sku, name, stock',
      [sku, name, stock],
    );
    if (rows[0]) return rows[0];
    throw new ConflictException(`Product ${sku} exists`);
  }

  /** `cached`: whether the cache may answer. */
  async find(sku: string, cached = true): Promise<ProductDto> {
    const product = await this.lookUp(sku, cached);
    if (product) return product;
    throw new NotFoundException(`No product ${sku}`);
  }

  /**
   * Strong, because a client that has learned of an order must not read the stock from before it, whichever process of
   * the shop answers. An eventual read could show it for a few milliseconds, until the message reaches its process.
   *
   * Absent products are cached as well, for a short time: requests for products that never existed must not cost a
   * query each.
   */
  @Cached('product:<0>', { consistency: 'strong', condition: (_sku: string, cached: boolean) => cached })
  async lookUp(sku: string, _cached: boolean): Promise<ProductDto | null> {
    const { rows } = await this.database.query<ProductDto>('SELECT sku, name, stock FROM products WHERE sku = $1', [
      sku,
    ]);
    return rows[0] ?? null;
  }

  /** Called after another part has changed the row, once its transaction has ended. */
  @CacheEvict('product:<0>')
  async changed(_sku: string): Promise<void> {}

  /** Under the lock of the deductions: a deduction that reads before the restock and writes after it would undo it. */
  @CacheEvict('product:<0>', { when: 'both' })
  @DistributedLock('stock:<0>')
  async restock(sku: string, quantity: number): Promise<ProductDto> {
    const product = await this.add(sku, quantity);
    if (product) return product;
    throw new NotFoundException(`No product ${sku}`);
  }

  private async add(sku: string, quantity: number): Promise<ProductDto | undefined> {
    try {
      const { rows } = await this.database.query<ProductDto>(
        'UPDATE products SET stock = stock + $2, version = version + 1 WHERE sku = $1 RETURNING sku, name, stock',
        [sku, quantity],
      );
      return rows[0];
    } catch (error) {
      const tooMany = error instanceof pg.DatabaseError && error.code === NUMERIC_VALUE_OUT_OF_RANGE;
      throw tooMany ? new StockLimitException(sku) : error;
    }
  }
}

/** The stock would exceed what its column can hold. */
class StockLimitException extends ShopException {
  constructor(sku: string) {
    const message = `The stock of ${sku} cannot be above ${MOST_STOCK}: restock fewer pieces`;
    super(HttpStatus.BAD_REQUEST, 'STOCK_LIMIT', message);
  }
}
