/**
 * Where things are in Redis: a value is the string `cache:<key>`, behind the prefix. What belongs to it lies in the
 * same Cluster slot: `lease:{cache:<key>}`, with the key as its hash tag, or `lease:cache:{tag}...` where the key
 * begins with a tag of its own. Any other `}` would end our tag, and is percent-encoded.
 */
export class RedisCacheKeys {
  /** Every message of the cache. */
  readonly channel: string;
  private readonly values: string;
  private readonly before: string;

  /** `clientPrefix` is what the client puts before every key: it counts for the slot. */
  constructor(
    prefix: string | undefined,
    private readonly clientPrefix = '',
  ) {
    this.before = prefix === undefined ? '' : `${prefix}:`;
    this.values = `${this.before}cache:`;
    this.channel = `${this.beforeKeys}bus`;
  }

  value(key: string): string {
    return this.values + (key.includes('}') || key.includes('%') ? escaped(key) : key);
  }

  /** What the values of all keys begin with, as the server sees them. */
  get beforeKeys(): string {
    return this.clientPrefix + this.values;
  }

  /** Of which key this is the value, as the server sees it. */
  keyOf(value: string): string {
    const key = value.slice(this.beforeKeys.length);
    return beginsWithTag(key) ? key : key.replace(/%25|%7D/g, (code) => (code === '%25' ? '%' : '}'));
  }

  /** The value, and the load that may store it. */
  valueAndLease(key: string): [value: string, lease: string] {
    const value = this.value(key);
    return [value, `${this.before}lease:${this.tagged(key, value)}`];
  }

  /** The value, the load that may store it, and the writes that are under way. */
  valueLeaseAndBarrier(key: string): [value: string, lease: string, barrier: string] {
    const value = this.value(key);
    const tagged = this.tagged(key, value);
    return [value, `${this.before}lease:${tagged}`, `${this.before}barrier:${tagged}`];
  }

  /** The load that may store the value. */
  lease(key: string): string {
    return this.valueAndLease(key)[1];
  }

  /** The writes that are under way. */
  barrier(key: string): string {
    return this.valueLeaseAndBarrier(key)[2];
  }

  tag(tag: string): string {
    return `${this.before}cache-tag:${tag}`;
  }

  /** When any tag was invalidated last. */
  get lastTagInvalidation(): string {
    return `${this.before}cache-tags`;
  }

  set(key: string): string {
    return `${this.before}cache-set:${key}`;
  }

  expiringSet(key: string): string {
    return `${this.before}cache-expiring-set:${key}`;
  }

  /** In braces, as what is beside it must lie in the same slot. */
  bits(key: string): string {
    return `${this.before}cache-bits:{${escaped(key)}}`;
  }

  /** The bits that are to take the place of those under `bits`. */
  rebuiltBits(key: string): string {
    return `${this.bits(key)}:rebuilt`;
  }

  /** The token of who rebuilds them. */
  rebuilder(key: string): string {
    return `${this.bits(key)}:rebuilder`;
  }

  /** The deletions that are to happen later. */
  get scheduled(): string {
    return `${this.before}cache-scheduled`;
  }

  /** Globs of the values and of the leases of all keys that match; of more, where in doubt. */
  globs(match: { readonly prefix: string } | { readonly pattern: string }): { values: string; leases: string } {
    const keys = 'prefix' in match ? `${escapeGlob(beginningOf(match.prefix))}*` : match.pattern;
    const all = escapeGlob(this.clientPrefix);
    const values = `${escapeGlob(this.values)}${keys}`;
    return { values: all + values, leases: `${all}${escapeGlob(this.before)}lease:*${values}*` };
  }

  private tagged(key: string, value: string): string {
    return beginsWithTag(key) ? value : `{${this.clientPrefix}${value}}`;
  }
}

/** What the name of a Cluster slot can be: `{tag}` at the beginning. */
function beginsWithTag(key: string): boolean {
  return key.startsWith('{') && key.indexOf('}') > 1;
}

/** So that no two keys become one, `%7D` itself is escaped as well. */
function escaped(key: string): string {
  if (beginsWithTag(key)) return key;
  return key.replace(/%(?=25|7D)/g, '%25').replaceAll('}', '%7D');
}

/** What the names of all keys with this prefix begin with, as far as it does not depend on how they go on. */
function beginningOf(prefix: string): string {
  // It may be the beginning of a tag, in which nothing is escaped.
  if (prefix.startsWith('{') && !prefix.includes('}')) return prefix.replace(/%.*$/s, '');
  // It may go on as `%7D`, which is escaped.
  return escaped(prefix).replace(/%7$/, '%');
}

function escapeGlob(text: string): string {
  return text.replace(/[\\*?[\]]/g, '\\$&');
}
