import type { CacheSerializer } from './cache-serializer.js';

/** Those that `typedSerializer()` made: what they make of bytes shares none of them. */
export const OWN_SERIALIZERS = new WeakSet<CacheSerializer>();
