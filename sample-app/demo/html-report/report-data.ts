/** What the charts of the report draw. It goes into the page as JSON. */
export interface ReportData {
  /** Pieces on sale at the start. */
  readonly stock: number;
  /** The percentiles that `latency` has a value for. */
  readonly percentiles: readonly number[];
  readonly sales: readonly SaleData[];
}

export interface SaleData {
  readonly strategy: string;
  readonly soldPerSecond: number;
  /** Milliseconds, one for each of the percentiles. */
  readonly latency: readonly number[];
  readonly course: readonly Moment[];
}

/** The state of a sale at one time. */
export interface Moment {
  /** Since the first order was sent. */
  readonly seconds: number;
  /** Orders accepted so far, of one piece each. */
  readonly accepted: number;
  /** What the database showed as left. */
  readonly stockLeft: number;
}
