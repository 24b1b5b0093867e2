import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Controller, Get } from '@nestjs/common';
import { moduleOf, start } from './kit.mjs';
import { AppModule } from './throttler/src/app.module.js';

class Page {
  get() {
    return 'page';
  }
}
Controller()(Page);
Get()(Page.prototype, 'get', Object.getOwnPropertyDescriptor(Page.prototype, 'get'));

test('the throttler counts over two processes', async () => {
  const parts = { imports: [AppModule], controllers: [Page] };
  const apps = [await start(moduleOf(parts), { listen: true }), await start(moduleOf(parts), { listen: true })];
  const addresses = await Promise.all(apps.map((app) => app.getUrl()));
  const statuses = [];
  for (let call = 0; call < 7; call++) statuses.push((await fetch(addresses[call % 2])).status);
  assert.deepEqual(statuses, [200, 200, 200, 200, 200, 429, 429]);
});
