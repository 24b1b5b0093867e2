import { getHeapSpaceStatistics } from 'node:v8';
import { BriefMap } from '../../lib/timing/brief-collections.js';

const oldSpace = () => getHeapSpaceStatistics().find((space) => space.space_name === 'old_space')?.space_used_size ?? 0;

/**
 * How much the old generation grows between two of its collections, while 100 values at a time are in the map, each for
 * a short while.
 */
function promoted(map: { add(key: number, value: object): unknown; delete(key: number): unknown }): number {
  let [least, growth] = [oldSpace(), 0];
  for (let key = 0; key < 100_000; key++) {
    map.add(key, Array.from({ length: 100 }));
    map.delete(key - 100);
    if (key % 500 !== 0) continue;
    const used = oldSpace();
    least = Math.min(least, used);
    growth = Math.max(growth, used - least);
  }
  return growth;
}

describe('BriefMap', () => {
  it('has what was added and not deleted', () => {
    const map = new BriefMap<string, number>();
    map.add('one', 1);
    map.add('two', 2);
    expect(map.get('one')).toBe(1);
    expect(map.size).toBe(2);
    map.delete('one');
    map.delete('absent');
    expect(map.get('one')).toBeUndefined();
    expect([...map.values()]).toEqual([2]);
  });

  it('lets go of its values while they are young, as a Map does not', () => {
    const map = new Map<number, object>();
    const ofMap = promoted({ add: (key, value) => map.set(key, value), delete: (key) => map.delete(key) });
    const ofBriefMap = promoted(new BriefMap<number, object>());
    expect(ofBriefMap).toBeLessThan(ofMap / 4);
  });
});
