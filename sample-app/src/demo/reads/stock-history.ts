/**
 * The stocks of one product, write by write. No stock occurs twice, and one writer sends one write after the other, so
 * a stock that was read shows after which write it was read.
 */
export class StockHistory {
  private readonly writeOf = new Map<number, number>();
  private answeredWrites = 0;

  constructor(stock: number) {
    this.writeOf.set(stock, 0);
  }

  /** How many writes were answered. */
  get answered(): number {
    return this.answeredWrites;
  }

  /** Called when a write is sent that leaves this stock. */
  send(stock: number): void {
    if (this.writeOf.has(stock)) throw new Error(`A stock of ${stock} was there before: reads of it tell nothing`);
    this.writeOf.set(stock, this.writeOf.size);
  }

  /** Called when the last write was answered. */
  answer(): void {
    this.answeredWrites = this.writeOf.size - 1;
  }

  /** Whether this is older than the stock after the first `answered` writes. A stock that never was counts as older. */
  isStale(stock: number, answered: number): boolean {
    const write = this.writeOf.get(stock);
    return write === undefined || write < answered;
  }
}
