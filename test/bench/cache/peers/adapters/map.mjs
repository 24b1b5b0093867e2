/** The limit of a first level: a Map with an expiry, by reference or with JSON that is parsed at each hit. */
export function connect({ options: { copies } }) {
  const entries = new Map();
  return {
    async getOrSet(key, loader, { ttl }) {
      const entry = entries.get(key);
      if (entry !== undefined && entry.expires > Date.now()) return copies ? JSON.parse(entry.value) : entry.value;
      const value = await loader();
      entries.set(key, { value: copies ? JSON.stringify(value) : value, expires: Date.now() + ttl });
      return value;
    },
    async invalidate(key) {
      entries.delete(key);
    },
  };
}
