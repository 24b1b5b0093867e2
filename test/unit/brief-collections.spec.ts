import { getHeapSpaceStatistics } from 'node:v8';
import { BriefMap, Roster } from '../../lib/timing/brief-collections.js';

const oldSpace = () => getHeapSpaceStatistics().find((space) => space.space_name === 'old_space')?.space_used_size ?? 0;

interface Collection {
  add(key: number, value: object): unknown;
  delete(key: number): unknown;
}

const LIVE = 100;
/** Of a few kilobytes, so that all of them are far more than what else the process keeps. */
const made = (): object => Array.from({ length: 400 });

/**
 * How much the old generation grows between two of its collections, while 100 values at a time are in the collection,
 * each for a short while. Before, those that are in it survive until the collection is in the old generation itself.
 */
function promoted(collection: Collection): number {
  let [least, growth] = [Infinity, 0];
  for (let key = 0; key < 50_000; key++) {
    collection.add(key, made());
    if (key >= LIVE) collection.delete(key - LIVE);
    if (key === LIVE) for (let count = 0; count < 50_000; count++) made();
    if (key % 500 !== 0 || key === 0) continue;
    const used = oldSpace();
    least = Math.min(least, used);
    growth = Math.max(growth, used - least);
  }
  return growth;
}

/** What `promoted` needs, of a collection of objects that know their place. */
function byObject<T extends object>(
  of: (value: object) => T,
  add: (one: T) => void,
  remove: (one: T) => void,
): Collection {
  const recent = Array.from<T>({ length: LIVE + 1 });
  return {
    add: (key, value) => add((recent[key % recent.length] = of(value))),
    delete: (key) => remove(recent[key % recent.length] as T),
  };
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

  it('lets go of what has left while it is young, as a Set does not', () => {
    const set = new Set<object>();
    const ofSet = promoted(
      byObject(
        (value) => ({ value }),
        (one) => set.add(one),
        (one) => set.delete(one),
      ),
    );
    const roster = new Roster<{ index: number }>();
    const ofRoster = promoted(
      byObject(
        (value) => ({ index: -1, value }),
        (one) => roster.add(one),
        (one) => roster.remove(one),
      ),
    );
    expect(ofRoster).toBeLessThan(ofSet / 4);
  });
});
