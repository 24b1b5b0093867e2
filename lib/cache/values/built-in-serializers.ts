import type { CacheSerializer } from './cache-serializer.js';

/** The serializers made by `typedSerializer()`: their values share no bytes with the data they were read from. */
export const BUILT_IN_SERIALIZERS = new WeakSet<CacheSerializer>();
