import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { conforms } from '../../conformance/conforms.js';
import { mariadbWorld } from './mariadb-world.js';

conforms(
  'mysql, lease table',
  mariadbWorld((url) => leaseTable(url), false),
);
conforms(
  'mysql, GET_LOCK',
  mariadbWorld((url) => getLock(url), true),
);
