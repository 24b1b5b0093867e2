import TestSequencer from '@jest/test-sequencer';

/** Folders whose specs take longest. */
const LONG = ['/test/shop/', '/test/faults/', '/test/conformance/'];

/** Starts the longest specs first: one that starts last would run alone at the end. */
export default class LongFirst extends TestSequencer {
  /** As long as they took last time, where that is known: otherwise by their folder, and then by their size. */
  sort(tests) {
    const rank = ({ path, duration }) =>
      duration === undefined && LONG.some((folder) => path.includes(folder)) ? 0 : 1;
    // oxlint-disable-next-line unicorn/no-array-sort -- of the class, not of an array
    const sorted = super.sort(tests);
    return sorted.toSorted((one, other) => rank(one) - rank(other));
  }
}
