import { jest } from '@jest/globals';
import type { Pending } from 'nest-redis-lock/backend';
import { EtcdEndpoint } from '../../../lib/backends/etcd/etcd-endpoint.js';
import { etcd } from '../../../lib/backends/etcd/etcd-lock-backend.js';
import { eventually } from '../../support/eventually.js';
import { EtcdModel } from '../../simulation/stores/etcd-model.js';
import { openBackend, type OpenBackend } from '../../support/open-backend.js';

const model = new EtcdModel(() => 0);
let openSession!: () => void;

beforeEach(() => {
  model.reset();
  const opened = new Promise<void>((resolve) => (openSession = resolve));
  jest.spyOn(EtcdEndpoint.prototype, 'stream').mockReturnValue(() => {});
  jest.spyOn(EtcdEndpoint.prototype, 'post').mockImplementation(async (path, body) => {
    if (path === '/v3/lease/grant') await opened;
    return model.call(path, JSON.parse(body) as object);
  });
});

afterEach(() => jest.restoreAllMocks());

describe('a ticket of etcd that is given back while its request waits for a session', () => {
  const ticket = { name: 'a', ticket: 'process:1' };
  const locks = () => model.names().filter((key) => key.includes('/lock/'));

  const next = { ticket: 'process:2' };

  it.each([
    ['acquire', (backend) => backend.acquire({ ...ticket, ttl: 3_000 }), {}],
    ['enqueue', ({ queue }) => queue!.enqueue({ ...ticket, ttl: 3_000, claim: 1_000, patient: false }), {}],
    // The next ticket of a turn that has ended.
    ['requeue', ({ queue }) => queue!.requeue({ ...ticket, again: next.ticket, claim: 1_000 }), next],
  ] as const satisfies readonly (readonly [string, (backend: OpenBackend) => Pending<unknown>, object])[])(
    'takes nothing (%s)',
    async (_request, ask, waiting) => {
      const backend = openBackend(etcd({ endpoints: 'http://etcd:2379' }));
      const asked = ask(backend);
      await expect(backend.release({ ...ticket, ...waiting })).resolves.toMatchObject({ status: 'gone' });
      openSession();
      await expect(asked).rejects.toThrow('was given back');
      expect(locks()).toEqual([]);
      await backend.close();
    },
  );

  it('may be asked for again', async () => {
    const backend = openBackend(etcd({ endpoints: 'http://etcd:2379' }));
    const asked = backend.acquire({ ...ticket, ttl: 3_000 });
    await backend.release(ticket);
    const again = backend.acquire({ ...ticket, ttl: 3_000 });
    openSession();
    await expect(asked).rejects.toThrow('was given back');
    await expect(again).resolves.toMatchObject({ status: 'granted' });
    await backend.close();
  });
});

describe('a hand-over of etcd while another process begins to wait', () => {
  const name = 'a';
  const queue = { name, ttl: 3_000, claim: 1_000, patient: false };

  /** What was written into the mailbox of the process. */
  function lettersTo(process: string): object[] {
    const key = Buffer.from(`nest-redis-lock/mail//${process}`).toString('base64');
    const posted = jest.mocked(EtcdEndpoint.prototype.post).mock.calls.flatMap(([, body]) => putsIn(JSON.parse(body)));
    const boxes = posted.filter((put) => put.key === key).map(({ value }) => Buffer.from(value, 'base64').toString());
    return boxes.flatMap((box) => JSON.parse(box) as object[]);
  }

  function putsIn({ success = [] }: { success?: { request_put?: { key: string; value: string } }[] }) {
    return success.flatMap(({ request_put: put }) => put ?? []);
  }

  it.each(['release', 'requeue'] as const)('tells the new owner of it: %s', async (how) => {
    openSession();
    const backend = openBackend(etcd({ endpoints: 'http://etcd:2379' }));
    await backend.acquire({ name, ticket: 'one:1', ttl: 3_000 });
    await backend.queue!.enqueue({ ...queue, ticket: 'two:1' });
    const post = jest.mocked(EtcdEndpoint.prototype.post);
    const before = post.getMockImplementation() as EtcdEndpoint['post'];
    let joined: Promise<unknown> | undefined;
    post.mockImplementation(async (path, ...rest) => {
      // The one that hands over has read who waits.
      if (!joined && putsIn(JSON.parse(rest[0]) as object).length > 1) {
        joined = Promise.resolve(backend.queue!.enqueue({ ...queue, ticket: 'three:1' }));
        await joined;
      }
      return before(path, ...rest);
    });
    if (how === 'release') await backend.release({ name, ticket: 'one:1' });
    else await backend.queue!.requeue({ name, ticket: 'one:1', again: 'one:2', claim: 1_000 });
    await eventually(() => lettersTo('two').length > 1);
    expect(lettersTo('two')).toMatchObject([
      { kind: 'grant', ticket: 'two:1' },
      { kind: 'wanted', ticket: 'two:1' },
    ]);
    await expect(joined).resolves.toMatchObject({ status: 'busy' });
    await backend.close();
  });
});
