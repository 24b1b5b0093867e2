import { Listeners } from '../../../lib/backends/listeners.js';
import { leaseTableOn } from '../../../lib/backends/mysql/lease-table-backend.js';
import { LockedRows } from '../../../lib/backends/mysql/lease-takes.js';
import type { MysqlLink } from '../../../lib/backends/mysql/mysql-link.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { Gate } from '../../support/gate.js';
import { openBackend } from '../../support/open-backend.js';

describe('locked rows of MySQL', () => {
  const clock = new DrivenClock();
  beforeEach(() => clock.start());
  afterEach(() => clock.stop());

  const rowsOf = (...ids: string[]) => ids.map((id) => ({ id }));

  /** Rows on which each statement is answered when the test says so. */
  function watched() {
    const locked = new LockedRows();
    const send = (...ids: string[]) => {
      const answer = new Gate();
      const settled = locked.watch(rowsOf(...ids), () => answer.opened);
      return { answer, settled };
    };
    /** The server answers statements on other rows. */
    const passOthers = async (ms: number) => {
      for (let passed = 0; passed < ms; passed += 50) {
        await clock.pass(50);
        await locked.watch(rowsOf('other'), async () => {});
      }
    };
    return { locked, send, passOthers };
  }

  it('a row whose statements wait for each other is not taken for one that somebody else keeps locked', async () => {
    const { locked, send, passOthers } = watched();
    const statements = Array.from({ length: 20 }, () => send('hot'));
    for (const { answer, settled } of statements) {
      await passOthers(150);
      expect(locked.has('hot')).toBe(false);
      answer.open();
      await settled;
    }
  });

  it('of the rows of a statement that waits, those go apart on which no other was answered meanwhile', async () => {
    const { locked, send, passOthers } = watched();
    const waiting = send('hot', 'stuck');
    await passOthers(100);
    const passed = send('hot');
    passed.answer.open();
    await passed.settled;
    await passOthers(250);
    expect([locked.has('hot'), locked.has('stuck')]).toEqual([false, true]);
    waiting.answer.open();
    await waiting.settled;
  });

  it('a hot row goes apart, too, once none of its statements is answered', async () => {
    const { locked, send, passOthers } = watched();
    const [first, second] = [send('hot'), send('hot')];
    await passOthers(100);
    first.answer.open();
    await first.settled;
    const later = send('hot');
    await passOthers(350);
    expect(locked.has('hot')).toBe(true);
    for (const { answer } of [second, later]) answer.open();
    await Promise.all([second.settled, later.settled]);
  });

  it('rows on which nothing is under way are forgotten', async () => {
    const { locked, send } = watched();
    const statement = send('a', 'a', 'b');
    const failing = locked.watch(rowsOf('c'), () => Promise.reject(new Error('refused')));
    await expect(failing).rejects.toThrow('refused');
    statement.answer.open();
    await statement.settled;
    expect((locked as unknown as { underWay: Map<string, unknown> }).underWay.size).toBe(0);
  });

  it('a renewal does not wait for the statements on a locked row, whose connection may be dead', async () => {
    const { locked, send, passOthers } = watched();
    send('row');
    await passOthers(350);
    expect(locked.has('row')).toBe(true);
    send('row');
    await expect(locked.watchAtOnce(rowsOf('row'), async () => 'renewed')).resolves.toBe('renewed');
  });
});

it('gives up to free a name whose owner is another one at each try', async () => {
  let owner = 0;
  const link = {
    rows: async () => [{ owner: `p:${++owner}` }],
    change: async () => ({ affectedRows: 0 }),
    listeners: new Listeners(),
  };
  const settings = { table: '`locks`', createTable: true, keepRows: 1_000 };
  const backend = openBackend(leaseTableOn(link as unknown as MysqlLink, settings));
  await expect(backend.forceRelease?.({ name: 'stock' })).rejects.toThrow(
    '"stock" had another owner at each of 20 tries',
  );
  expect(owner).toBe(20);
});
