import { Child } from '../../support/child.js';

/** Of a class that another copy decorates, in an application with the module of this one. */
let answers: Record<string, string> & { paths: { here: string; other: string } };
beforeAll(async () => {
  const child = Child.start('two-copies.mjs');
  answers = await child.says('answers', 30_000);
  expect(await child.exited).toBe(0);
}, 40_000);

it.each(['lock as a class', 'lock as a value', 'lock wired', 'cache as a class', 'cache as a value', 'cache wired'])(
  '%s is refused, and both copies are named by their paths',
  (how) => {
    const { paths } = answers;
    expect(answers[how]).toMatch(/^(Lock|Cache)ConfigError: /);
    expect(answers[how]).toContain(`decorated with the copy of nest-redis-lock in ${paths.other}, but`);
    expect(answers[how]).toContain(`RedisLockModule is imported from the copy in ${paths.here};`);
  },
);

it.each(['mocked', 'both modules, as a class', 'both modules, as a value'])('%s works', (how) => {
  expect(answers[how]).toBe('ran');
});
