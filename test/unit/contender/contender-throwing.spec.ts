import {
  app,
  backend,
  Call,
  clock,
  contenders,
  NAME,
  startContender,
  waiting,
} from '../../support/contender-at-backend.js';
import { granted } from '../../support/scripted-backend.js';

startContender();

describe('a queue that throws instead of answering', () => {
  const broken = () => {
    throw new Error('broken');
  };

  it('fails the calls, and the next ones are served', async () => {
    const { enqueue } = backend.queue;
    backend.queue.enqueue = broken;
    await expect(app.locks.tryAcquire(NAME)).rejects.toThrow('broken');
    const call = new Call({ wait: 500 });
    await clock.pass(600);
    expect(call.error).toHaveProperty('message', expect.stringContaining('broken'));
    expect(contenders()).toBe(0);
    expect(app.locks.backendState(undefined)).toMatchObject({ held: 0, waiting: 0 });
    backend.queue.enqueue = enqueue;
    const next = new Call({ wait: 500 });
    await (await backend.take('enqueue')).answer(granted());
    await (await next.held()).release();
  });

  it('in a heartbeat is asked again', async () => {
    const { beat } = backend.queue;
    const { call } = await waiting({}, { first: true, remaining: 5 });
    backend.queue.beat = broken;
    await clock.pass(10);
    backend.queue.beat = beat;
    await (await backend.take('beat')).answer(granted());
    expect((await call.held()).held).toBe(true);
  });
});
