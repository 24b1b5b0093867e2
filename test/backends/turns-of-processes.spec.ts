import { processesTakeTurns } from '../support/backend-cases.js';

it.each(['mysql', 'mysql-get-lock'] as const)(
  'processes whose holders await nothing take turns on %s',
  processesTakeTurns,
);
