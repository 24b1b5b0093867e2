import { createServer, type AddressInfo } from 'node:net';
import { Client } from 'undici';
import { EtcdExchange } from '../../lib/backends/etcd/etcd-endpoint.js';

it('sends nothing of a request that was given up before there was a connection, and says so', async () => {
  const received: string[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      received.push(data.toString());
      socket.end();
    });
  });
  const closed = new Promise((resolve) => server.once('connection', (socket) => socket.once('close', resolve)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const sent: boolean[] = [];
  const exchange = new EtcdExchange(
    () => {},
    (_, uncertain) => sent.push(uncertain),
  );
  client.dispatch({ method: 'POST', path: '/', body: '{}' }, exchange);
  exchange.giveUp(new Error('too late'));
  await closed;
  expect(received).toEqual([]);
  expect(new Set(sent)).toEqual(new Set([false]));
  await client.destroy();
  await new Promise((resolve) => server.close(resolve));
});
