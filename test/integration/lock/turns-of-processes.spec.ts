import { processesTakeTurns } from '../../support/turns-of-processes.js';

it.each(['redlock', 'postgres-advisory'] as const)(
  'processes whose holders await nothing take turns on %s',
  processesTakeTurns,
);
