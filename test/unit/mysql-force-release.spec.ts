import type { MysqlLink } from '../../lib/backends/mysql/mysql-link.js';
import { LeaseTableBackend } from '../../lib/backends/mysql/lease-table-backend.js';

it('gives up to free a name whose owner is another one at each try', async () => {
  let owner = 0;
  const link = {
    rows: async () => [{ owner: Buffer.from(`p:${++owner}`) }],
    change: async () => ({ affectedRows: 0 }),
  };
  const settings = { table: '`locks`', createTable: true, keepRows: 1_000 };
  const backend = new LeaseTableBackend(link as unknown as MysqlLink, settings);
  await expect(backend.forceRelease({ name: 'stock' })).rejects.toThrow(
    '"stock" had another owner at each of 20 tries',
  );
  expect(owner).toBe(20);
});
