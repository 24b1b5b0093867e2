import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runJest } from './kit.mjs';

test('the tests of the page pass', async () => {
  assert.match(await runJest('testing-a-decorated-method/src'), /Tests: +4 passed, 4 total/);
});
