import { getHeapSpaceStatistics } from 'node:v8';
import { BriefMap, Roster } from '../../lib/timing/brief-collections.js';

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

/** Something else of the process may be promoted in one of them. */
const rounds = (round: () => number) => [round(), round(), round()];

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
    const ofMaps = rounds(() => {
      const map = new Map<number, object>();
      return promoted({ add: (key, value) => map.set(key, value), delete: (key) => map.delete(key) });
    });
    const ofBriefMaps = rounds(() => promoted(new BriefMap<number, object>()));
    const [ofMap, ofBriefMap] = [Math.max(...ofMaps), Math.min(...ofBriefMaps)];
    expect(ofBriefMap).toBeLessThan(ofMap / 4);
  });
});

describe('Roster', () => {
  const listed = () => ({ index: -1 });

  it('has what was added and not removed', () => {
    const roster = new Roster<{ index: number }>();
    const [one, two, three] = [listed(), listed(), listed()];
    for (const each of [one, two, three]) roster.add(each);
    expect(roster.remove(one)).toBe(true);
    expect(roster.remove(one)).toBe(false);
    expect(new Set(roster.toArray())).toEqual(new Set([two, three]));
    expect(roster.remove(three)).toBe(true);
    expect(roster.toArray()).toEqual([two]);
    roster.add(one);
    expect(roster.remove(two)).toBe(true);
    expect(roster.toArray()).toEqual([one]);
    expect(roster.size).toBe(1);
  });

  it('lets go of what has left while it is young', () => {
    const growths = rounds(() => {
      const roster = new Roster<{ index: number }>();
      const recent = new Map<number, { index: number }>();
      return promoted({
        add: (key, value) => {
          const one = { index: -1, value };
          recent.set(key % 100, one);
          roster.add(one);
        },
        delete: (key) => key >= 0 && roster.remove(recent.get(key % 100) as { index: number }),
      });
    });
    expect(Math.min(...growths)).toBeLessThan(1_000_000);
  });
});
