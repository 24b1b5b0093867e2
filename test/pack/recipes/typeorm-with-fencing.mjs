import { after } from 'node:test';
import { DataSource } from 'typeorm';
import { testFencedStock } from './fenced-stock.mjs';
import { startWith } from './kit.mjs';
import { Product } from './typeorm-with-fencing/src/product.js';
import { StockService, Supplier } from './typeorm-with-fencing/src/stock.service.js';

const database = new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  schema: 'typeorm',
  entities: [Product],
});
await database.initialize();
after(() => database.destroy());
await database.query('CREATE SCHEMA typeorm');
await database.synchronize();
await database.manager.insert(Product, [
  { sku: 'teapot', stock: 3 },
  { sku: 'kettle', stock: 3 },
]);

testFencedStock({
  shop: (confirm) =>
    startWith({
      options: { prefix: 'typeorm' },
      providers: [
        { provide: DataSource, useValue: database },
        { provide: Supplier, useValue: { confirm } },
        StockService,
      ],
    }),
  sell: (app, sku) => app.get(StockService).sell(sku, 1),
  stock: async (sku) => (await database.manager.findOneByOrFail(Product, { sku })).stock,
  lockKey: 'typeorm:lock:{stock:kettle}',
});
