import { PrismaPg } from '@prisma/adapter-pg';
import { after } from 'node:test';
import { testFencedStock } from './fenced-stock.mjs';
import { database, startWith } from './kit.mjs';
import { PrismaClient } from './prisma-with-fencing/src/generated/client.js';
import { StockService, Supplier } from './prisma-with-fencing/src/stock.service.js';

// The schema engine would do this; it is a program to be downloaded, and the client needs none.
await database(`
  CREATE SCHEMA prisma;
  CREATE TABLE prisma."Product" ("sku" text PRIMARY KEY, "stock" int NOT NULL, "fence" bigint NOT NULL DEFAULT 0);
  CREATE TABLE prisma."Order" ("id" serial PRIMARY KEY, "sku" text NOT NULL, "quantity" int NOT NULL);
  INSERT INTO prisma."Product" ("sku", "stock") VALUES ('teapot', 3), ('kettle', 3);
`);
const adapter = new PrismaPg({ connectionString: process.env.DATABASE_URL }, { schema: 'prisma' });
const prisma = new PrismaClient({ adapter });
after(() => prisma.$disconnect());

testFencedStock({
  shop: (confirm) =>
    startWith({
      options: { prefix: 'prisma' },
      providers: [
        { provide: PrismaClient, useValue: prisma },
        { provide: Supplier, useValue: { confirm } },
        StockService,
      ],
    }),
  sell: (app, sku) => app.get(StockService).sell(sku, 1),
  stock: async (sku) => (await prisma.product.findUniqueOrThrow({ where: { sku } })).stock,
  lockKey: 'prisma:lock:{stock:kettle}',
});
