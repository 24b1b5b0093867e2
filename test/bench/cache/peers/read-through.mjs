/**
 * The floor: what a careful colleague writes by hand, with neither single flight nor anything else, over commands that
 * get and set strings.
 */
export function readThrough({ get, set, del }) {
  return {
    async getOrSet(key, loader, { ttl }) {
      const hit = await get(key);
      if (hit !== null) return JSON.parse(hit);
      const value = await loader();
      await set(key, JSON.stringify(value), ttl);
      return value;
    },
    invalidate: del,
  };
}
