/**
 * What the stock of one product was, write by write. No stock comes twice, and one writer sends one write after the
 * other: so a stock that was read tells after which write it was read.
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

  /** A write is sent that leaves this stock. */
  send(stock: number): void {
    if (this.writeOf.has(stock)) throw new Error(`A stock of ${stock} was there before: reads of it tell nothing`);
    this.writeOf.set(stock, this.writeOf.size);
  }

  /** The write that was sent last was answered. */
  answer(): void {
    this.answeredWrites = this.writeOf.size - 1;
  }

  /** Whether this is older than what the first `answered` writes had left; so is what the stock never was. */
  isStale(stock: number, answered: number): boolean {
    const write = this.writeOf.get(stock);
    return write === undefined || write < answered;
  }
}
