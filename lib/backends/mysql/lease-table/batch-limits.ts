import type { Lanes } from '../../batching/gathering.js';

/** How many calls one statement carries at most: it keeps the rows of all locked until it is done. */
export const MOST = 100;
/** How many batches of one kind are under way while further calls gather. */
export const LANES: Lanes = { lanes: 2 };
