import type { Pending } from '../../contracts/pending.js';
import type { TagStamp } from '../values/envelope.js';

/** A deletion, of what it covers. */
export interface Deletion {
  /** With its key or tag, for messages. */
  readonly what: string;
  /** What messages that name the key call it. */
  readonly operation: string;
  /** One of the same name takes its place. */
  readonly name: string;
  readonly key?: string;
  /** It does no more than to delete the value of `key`, so that any other deletion of it covers as much. */
  readonly plain?: boolean;
  readonly tag?: string;
  /** The keys that it covers, where it looks at every key. */
  readonly matches?: (key: string) => boolean;
  send(): Pending<unknown>;
}

/** Deletions that the store has not confirmed, and what they cover. */
export class PendingDeletions {
  private readonly byName = new Map<string, Deletion>();
  private readonly byKey = new Map<string, Set<Deletion>>();
  /** Those that cover more than one key: every read is compared with them. */
  private readonly byTag = new Set<Deletion>();
  private readonly bySweep = new Set<Deletion>();

  get size(): number {
    return this.byName.size;
  }

  /** Those that look at every key. */
  get sweeps(): readonly Deletion[] {
    return [...this.bySweep];
  }

  /** Those that are one step each. */
  get steps(): readonly Deletion[] {
    return [...this.byName.values()].filter(({ matches }) => matches === undefined);
  }

  get hasSteps(): boolean {
    return this.byName.size > this.bySweep.size;
  }

  get first(): Deletion | undefined {
    return this.byName.values().next().value;
  }

  has({ name }: Deletion): boolean {
    return this.byName.has(name);
  }

  includes(deletion: Deletion): boolean {
    return this.byName.get(deletion.name) === deletion;
  }

  /** Those that are carried out with this one. */
  coveredBy({ name, key }: Deletion): readonly Deletion[] {
    if (this.byName.size === 0) return [];
    const same = this.byName.get(name);
    const plain = this.ofKey(key).filter((each) => each.plain && each !== same);
    return same ? [same, ...plain] : plain;
  }

  ofKey(key: string | undefined): readonly Deletion[] {
    if (key === undefined) return [];
    const deletions = this.byKey.get(key);
    return deletions ? [...deletions] : [];
  }

  add(deletion: Deletion): void {
    const { name, key, tag, matches } = deletion;
    this.delete(this.byName.get(name));
    this.byName.set(name, deletion);
    if (tag !== undefined) this.byTag.add(deletion);
    if (matches) this.bySweep.add(deletion);
    if (key === undefined) return;
    const ofKey = this.byKey.get(key);
    if (ofKey) ofKey.add(deletion);
    else this.byKey.set(key, new Set([deletion]));
  }

  /** Another one of its name may have taken its place, and stays. */
  delete(deletion: Deletion | undefined): void {
    if (!deletion || !this.includes(deletion)) return;
    const { name, key } = deletion;
    this.byName.delete(name);
    this.byTag.delete(deletion);
    this.bySweep.delete(deletion);
    if (key === undefined) return;
    const ofKey = this.byKey.get(key);
    ofKey?.delete(deletion);
    if (ofKey?.size === 0) this.byKey.delete(key);
  }

  /** What keeps the value of the key from being read. */
  covering(key: string): Deletion | undefined {
    if (this.byName.size === 0) return undefined;
    const [ofKey] = this.byKey.get(key) ?? [];
    if (ofKey) return ofKey;
    for (const deletion of this.bySweep) if (deletion.matches?.(key)) return deletion;
    return undefined;
  }

  /** What keeps a value with these tags from being read. */
  coveringTags(tags: TagStamp | undefined): Deletion | undefined {
    if (!tags) return undefined;
    for (const deletion of this.byTag) {
      if (deletion.tag !== undefined && Object.hasOwn(tags, deletion.tag)) return deletion;
    }
    return undefined;
  }
}

/** What the deletion of one key is called; `token`: that of the barrier which it begins or ends. */
export function keyDeletion(key: string, token = ''): string {
  return `k${token}:${key}`;
}
