import { processesTakeTurns } from '../support/turns-of-processes.js';

it.each(['mysql', 'mysql-get-lock'] as const)(
  'processes whose holders await nothing take turns on %s',
  processesTakeTurns,
);
