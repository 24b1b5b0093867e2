import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { WsAdapter } from '@nestjs/platform-ws';
import { LockService } from 'nest-redis-lock';
import { WebSocket } from 'ws';
import { eventually, gate, startWith } from './kit.mjs';
import { AuctionGateway } from './websocket/src/auction.gateway.js';
import { Auction } from './websocket/src/auction.js';
import { LockErrorFilter } from './websocket/src/lock-error.filter.js';

let highest = 0;
const bids = [];
const bidding = gate();
const auction = {
  bid: async (lot, amount) => {
    bids.push([lot, amount]);
    const before = highest;
    await bidding.pass();
    if (amount > before) highest = amount;
    return highest;
  },
};
const process = () =>
  startWith(
    { providers: [AuctionGateway, LockErrorFilter, { provide: Auction, useValue: auction }] },
    { listen: true, prepare: (app) => app.useWebSocketAdapter(new WsAdapter(app)) },
  );
const apps = [await process(), await process()];

async function connectTo(app) {
  const socket = new WebSocket(`${(await app.getUrl()).replace('http', 'ws')}/auction`);
  after(() => socket.terminate());
  await once(socket, 'open');
  return {
    close: () => socket.close(),
    send: (data) => socket.send(JSON.stringify({ event: 'bid', data })),
    answer: async () => JSON.parse((await once(socket, 'message'))[0].toString()),
  };
}

test('bids for one lot run one after the other, over two processes; the client learns of a busy lot', async () => {
  const [one, other] = [await connectTo(apps[0]), await connectTo(apps[1])];
  const answer = one.answer();
  one.send({ lot: 'vase', amount: 10 });
  await bidding.entered;
  const refused = other.answer();
  other.send({ lot: 'vase', amount: 12 });
  const { event, data } = await refused;
  assert.equal(event, 'exception');
  assert.equal(data.code, 'LOCK_TIMEOUT');
  assert.equal(data.statusCode, 423);
  assert.deepEqual(bids, [['vase', 10]]);
  bidding.open();
  assert.deepEqual(await answer, { event: 'highest', data: 10 });
  const second = other.answer();
  other.send({ lot: 'vase', amount: 12 });
  assert.deepEqual(await second, { event: 'highest', data: 12 });
});

test('a client that goes away gives up its place', async () => {
  const locks = apps[0].get(LockService);
  const held = await locks.acquire('lot:clock');
  const leaving = await connectTo(apps[1]);
  leaving.send({ lot: 'clock', amount: 5 });
  await eventually(async () => (await locks.inspect('lot:clock'))?.waiting === 1);
  leaving.close();
  await eventually(async () => (await locks.inspect('lot:clock'))?.waiting === 0);
  await held.release();
  assert.equal(
    bids.some(([lot]) => lot === 'clock'),
    false,
  );
});
