import { createClient } from '@redis/client';
import { redlock } from 'nest-redis-lock/redlock';

const open = () => createClient({ url: 'redis://127.0.0.1:1' });

it.each([0, Infinity])('leaves a limit of %s listeners as it is', async (limit) => {
  const clients = [open(), open(), open()];
  for (const client of clients) client.setMaxListeners(limit);
  const backend = redlock(clients);
  expect(clients.map((client) => client.getMaxListeners())).toEqual([limit, limit, limit]);
  await backend.close?.();
  expect(clients.map((client) => client.getMaxListeners())).toEqual([limit, limit, limit]);
});

it('lowers the limit of listeners that it has raised', async () => {
  const clients = [open(), open(), open()];
  const before = clients.map((client) => client.getMaxListeners());
  const backend = redlock(clients);
  expect(clients[0]?.getMaxListeners()).toBeGreaterThan(before[0] ?? Infinity);
  await backend.close?.();
  expect(clients.map((client) => client.getMaxListeners())).toEqual(before);
});

it.each([0, 1, Infinity])('closes after the application has set a limit of %s listeners', async (limit) => {
  const clients = [open(), open(), open()];
  const backend = redlock(clients);
  for (const client of clients) client.setMaxListeners(limit);
  await backend.close?.();
  expect(clients.map((client) => client.getMaxListeners())).toEqual([limit, limit, limit]);
});
