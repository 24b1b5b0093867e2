import { zipf } from '../../../dist-sample/demo/zipf.js';

const KEYS_OF_A_CALLER = 64;

/** Which keys callers take: each answers the next key of one caller. */
export const KEYS = {
  /** Nobody else's: a caller goes round its own. */
  own: (caller) => {
    let next = 0;
    return () => `own:${process.pid}:${caller}:${next++ % KEYS_OF_A_CALLER}`;
  },
  hot: () => () => 'hot',
  zipf: () => {
    const draw = zipf(1_000, 1);
    return () => `zipf:${draw()}`;
  },
};
