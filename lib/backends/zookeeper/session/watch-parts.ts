/** How many bytes of paths one request names, as in ZooKeeper's own client: a server takes up to `jute.maxbuffer`. */
const MOST = 128 * 1024;
/** How many bytes the length of a path takes, which precedes it. */
const LENGTH = 4;
/** The code of the request that names all watches of a session on a new connection. */
const SET_WATCHES = 101;

const LISTS = ['dataWatches', 'existWatches', 'childWatches'] as const;

type List = (typeof LISTS)[number];

interface WatchesPayload extends Record<List, readonly string[]> {
  readonly chrootPath?: string | undefined;
}

interface WatchesRequest {
  readonly header: object;
  readonly payload: WatchesPayload;
}

/** The requests that name what this one does, each small enough; the request itself if it names no watches. */
export function partsOf(request: unknown): readonly unknown[] {
  if (!namesWatches(request)) return [request];
  const { header, payload } = request;
  const perPath = LENGTH + Buffer.byteLength(payload.chrootPath ?? '');
  const parts: Record<List, string[]>[] = [];
  let bytes = Infinity;
  for (const list of LISTS) {
    for (const path of payload[list]) {
      const size = perPath + Buffer.byteLength(path);
      if (bytes + size > MOST) {
        parts.push({ dataWatches: [], existWatches: [], childWatches: [] });
        bytes = 0;
      }
      bytes += size;
      parts.at(-1)?.[list].push(path);
    }
  }
  // The client writes the number of the request to its header.
  return parts.map((part) => copyOf(request, { header: copyOf(header, {}), payload: copyOf(payload, part) }));
}

function namesWatches(request: unknown): request is WatchesRequest {
  const header: unknown = Reflect.get(Object(request), 'header');
  return Reflect.get(Object(header), 'type') === SET_WATCHES;
}

/** Of the same class, so that the client can encode it. */
function copyOf(original: object, changes: object): object {
  return Object.assign(Object.create(Object.getPrototypeOf(original)), original, changes);
}
