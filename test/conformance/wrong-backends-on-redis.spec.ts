import { failTheirCases } from './wrong-backends.js';
import { WRONG_ON_REDIS } from './wrong-on-redis.js';

failTheirCases(WRONG_ON_REDIS);
