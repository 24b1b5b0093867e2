import { AsyncLocalStorage, createHook } from 'node:async_hooks';
import { mayEnd, mustNotEnd } from '../../lib/timing/awake-process.js';

it('makes no timer in the async context of a call, which would keep what that context has', () => {
  const made: string[] = [];
  const hook = createHook({ init: (_id, type) => made.push(type) }).enable();
  new AsyncLocalStorage<string>().run('request', mustNotEnd);
  hook.disable();
  mayEnd();
  expect(made).not.toContain('Timeout');
});
