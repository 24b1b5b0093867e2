import { CACHE_MUTATIONS } from './cache-mutations.js';
import { GUARANTEE_MUTATIONS } from './guarantee-mutations.js';
import { LOCK_MUTATIONS } from './lock-mutations.js';
import type { Mutation } from './mutation.js';
import { STORE_MUTATIONS } from './store-mutations.js';

export type { Mutation };

export const MUTATIONS: readonly Mutation[] = [
  ...LOCK_MUTATIONS,
  ...GUARANTEE_MUTATIONS,
  ...CACHE_MUTATIONS,
  ...STORE_MUTATIONS,
];
