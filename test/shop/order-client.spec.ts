import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { OrderClient } from '../../sample-app/demo/load.js';
import { Gate } from '../support/gate.js';

let server: Server;

afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
});

it('sends an order again for each idle connection that the shop has closed meanwhile', async () => {
  const all = new Gate();
  const used = new Set<unknown>();
  server = createServer((request, response) => {
    if (used.has(request.socket)) {
      request.socket.resetAndDestroy();
      return;
    }
    used.add(request.socket);
    if (used.size === 3) all.open();
    void all.opened.then(() => response.writeHead(201).end('{}'));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/orders`;
  using client = new OrderClient();
  const post = () => client.post(url, {}, AbortSignal.timeout(60_000));
  // Three connections, which are idle afterwards.
  await Promise.all([post(), post(), post()]);
  expect(await post()).toEqual({ status: 201, body: '{}' });
  expect(used.size).toBe(4);
});
