/** Every caller has names of its own. */
export const FREE_1 = { title: 'uncontended, 1 caller', processes: 1, callers: 1, keys: 'own' };
export const FREE_100 = { title: 'uncontended, 100 callers', processes: 1, callers: 100, keys: 'own' };

/** All callers want one name. */
export const HOT_4_1 = { title: 'hot key, 4 processes × 1 caller', processes: 4, callers: 1, keys: 'hot' };
export const HOT_4_25 = { title: 'hot key, 4 processes × 25 callers', processes: 4, callers: 25, keys: 'hot' };
export const HOT_1_100 = { title: 'hot key, 1 process × 100 callers', processes: 1, callers: 100, keys: 'hot' };
