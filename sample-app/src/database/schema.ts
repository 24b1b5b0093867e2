/**
 * No CHECK on the stock: the database would then guard what this shop shows how to guard. `version` belongs to the
 * optimistic strategy, `fence` to the fenced one.
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
CREATE TABLE IF NOT EXISTS stock_reports (
  period   bigint PRIMARY KEY,
  products int    NOT NULL,
  pieces   bigint NOT NULL,
  process  int    NOT NULL
);`;
