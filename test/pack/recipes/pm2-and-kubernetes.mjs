import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { connect, eventually, freePort } from './kit.mjs';

/** A process of the application, as pm2 starts it with `wait_ready`. */
async function serve() {
  const port = await freePort();
  const child = fork('pm2-and-kubernetes/src/main.js', { env: { ...process.env, PORT: String(port) }, silent: true });
  let said = '';
  child.stdout.on('data', (data) => (said += data));
  const [message] = await once(child, 'message');
  assert.equal(message, 'ready');
  return { child, address: `http://127.0.0.1:${port}`, said: () => said };
}

test('the process ends after its request, with 0, and leaves no lock', async () => {
  const { child, address, said } = await serve();
  const request = fetch(`${address}/ship`, { method: 'POST' });
  await eventually(() => said().includes('shipping'));
  const redis = connect();
  assert.equal(await redis.exists('lock:{slow-order}'), 1);
  child.kill('SIGTERM');
  assert.equal(await (await request).text(), 'shipped');
  const [code, signal] = await once(child, 'exit');
  assert.deepEqual({ code, signal }, { code: 0, signal: null });
  assert.equal(await redis.exists('lock:{slow-order}'), 0);
});

test('what the page gives pm2 can be loaded', async () => {
  const { default: config } = await import('./pm2-and-kubernetes/ecosystem.config.cjs');
  const [app] = config.apps;
  assert.equal(app.script, 'dist/main.js');
  assert.ok(app.kill_timeout > 5000, 'longer than shutdownGrace');
});
