import { ConflictException, Inject, Injectable, NotFoundException } from '@nestjs/common';
import { DistributedLock } from 'nest-redis-lock';
import { Database } from '../database/database.js';
import type { CreateProductDto, ProductDto } from './product.dto.js';

@Injectable()
export class ProductsService {
  constructor(@Inject(Database) private readonly database: Database) {}

  async create({ sku, name = sku, stock }: CreateProductDto): Promise<ProductDto> {
    const { rows } = await this.database.query<ProductDto>(
      'INSERT INTO products (sku, name, stock) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING sku, name, stock',
      [sku, name, stock],
    );
    if (rows[0]) return rows[0];
    throw new ConflictException(`Product ${sku} exists`);
  }

  async find(sku: string): Promise<ProductDto> {
    const { rows } = await this.database.query<ProductDto>('SELECT sku, name, stock FROM products WHERE sku = $1', [
      sku,
    ]);
    if (rows[0]) return rows[0];
    throw new NotFoundException(`No product ${sku}`);
  }

  /** The lock of the deductions: one that reads before and writes after the restock would undo it. */
  @DistributedLock('stock:<0>')
  async restock(sku: string, quantity: number): Promise<ProductDto> {
    const { rows } = await this.database.query<ProductDto>(
      'UPDATE products SET stock = stock + $2, version = version + 1 WHERE sku = $1 RETURNING sku, name, stock',
      [sku, quantity],
    );
    if (rows[0]) return rows[0];
    throw new NotFoundException(`No product ${sku}`);
  }
}
