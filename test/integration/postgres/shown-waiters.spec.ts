import { leaseTable } from 'nest-redis-lock/postgres';
import { db, name, ownerAndWaiter, peer, server, silence, startLeaseTable } from '../../support/lease-table-queue.js';
import { expectWaitersInOrder } from '../../support/shown-waiters.js';

startLeaseTable();

it('shows who waits on PostgreSQL, in order', async () => {
  await expectWaitersInOrder(() => leaseTable(server.url));
});

it('ends after 100 places, and leaves out a process that gave no sign of life', async () => {
  const { a, a1, b, b1 } = await ownerAndWaiter();
  const c = await peer();
  const tickets = Array.from({ length: 110 }, () => c.ticket());
  for (const ticket of tickets) await c.enqueue(name, ticket);
  // A busy machine may have taken long.
  await db.query('UPDATE nest_redis_lock.waiters SET seen_at = clock_timestamp()');
  await silence(a1, 6_000);
  const state = await a.backend.inspect({ name });
  expect(state).toMatchObject({ owner: b1, waiting: 111 });
  expect(state?.waiters).toEqual(tickets.slice(0, 100).map((ticket) => ({ ticket })));
  await b.release(name, b1);
});
