import { eventually } from '../support/eventually.js';
import { RecordingCacheListener } from '../support/recording-cache-listener.js';
import { eachCacheStore, LONG, store, other, key, ask, toHear } from './each-cache-store.js';

eachCacheStore(({ open, ownsConnection }) => {
  describe('the connection', () => {
    it('answers a ping', async () => {
      await expect(Promise.resolve(store.ping())).resolves.toBeDefined();
    });

    it('reports to a later listener that it is open, and to all listeners', async () => {
      const late = new RecordingCacheListener();
      store.listen(late);
      await eventually(() => late.heard.includes('connected'));
      await other.invalidate({ key });
      await eventually(() => late.heard.includes(`invalidated ${key}`));
      await toHear(`invalidated ${key}`);
    });

    // A client of the user's goes on.
    if (ownsConnection) {
      it('rejects calls after it was closed', async () => {
        const closed = await open();
        await closed.store.set({ key, data: 'x', ttl: LONG });
        closed.store.close();
        const asked = [
          closed.store.read(key),
          ask(closed.store),
          closed.store.invalidate({ key }),
          closed.store.ping(),
          closed.store.sets.members(key),
          closed.store.deleteMatching({ match: { prefix: key }, batch: 100 }),
        ];
        for (const outcome of await Promise.allSettled(asked)) {
          expect(outcome).toMatchObject({ status: 'rejected', reason: expect.any(Error) });
        }
        await closed.close();
      });
    }
  });
});
