/**
 * No CHECK on the stock, because the database would then do what this shop demonstrates. `version` belongs to the
 * optimistic strategy, `fence` to the fenced one.
 *
 * Nor does a key keep reports and runs of orders unique: rows that are there twice show that a job or an order ran
 * twice. The number of an order is unique.
 */
export const SCHEMA = `
CREATE TABLE IF NOT EXISTS products (
  sku     text   PRIMARY KEY,
  name    text   NOT NULL,
  stock   int    NOT NULL,
  version int    NOT NULL DEFAULT 0,
  fence   bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS orders (
  order_id text        PRIMARY KEY,
  sku      text        NOT NULL REFERENCES products,
  quantity int         NOT NULL,
  strategy text        NOT NULL,
  stock    int         NOT NULL,
  placed   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS orders_of_sku ON orders (sku);
CREATE TABLE IF NOT EXISTS order_runs (
  run      bigserial PRIMARY KEY,
  order_id text      NOT NULL,
  sku      text      NOT NULL,
  customer text      NOT NULL,
  attempt  int       NOT NULL,
  process  int       NOT NULL
);
CREATE TABLE IF NOT EXISTS catalogue (
  sku     text PRIMARY KEY,
  price   int  NOT NULL,
  version int  NOT NULL
);
CREATE TABLE IF NOT EXISTS stock_reports (
  report   bigserial PRIMARY KEY,
  period   bigint    NOT NULL,
  products int       NOT NULL,
  pieces   bigint    NOT NULL,
  process  int       NOT NULL
);
CREATE TABLE IF NOT EXISTS stock_levels (
  sku   text PRIMARY KEY REFERENCES products,
  level int  NOT NULL
);
CREATE TABLE IF NOT EXISTS restocks (
  restock  bigserial PRIMARY KEY,
  sku      text      NOT NULL REFERENCES products,
  quantity int       NOT NULL,
  term     bigint    NOT NULL,
  process  int       NOT NULL
);
CREATE TABLE IF NOT EXISTS restock_fence (
  one  boolean PRIMARY KEY DEFAULT true CHECK (one),
  term bigint  NOT NULL
);
INSERT INTO restock_fence (term) VALUES (0) ON CONFLICT DO NOTHING;`;
