import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { eventually } from '../support/eventually.js';
import { FaultProxy } from '../support/fault-proxy.js';

/** A socket that Node.js fails to close has the process spin for ever when it ends, after all its work. */

const ACCEPTED = 'net.server.socket';
const openSockets = () => process.getActiveResourcesInfo().filter((each) => each === 'TCPSocketWrap').length;

const ways: [string, (proxy: FaultProxy) => void][] = [
  ['resets', (proxy) => proxy.reset()],
  ['refuses', (proxy) => proxy.refuse()],
];

it.each(ways)('a proxy that %s a connection while its client ends it leaves no socket open', async (_way, breakOff) => {
  const before = openSockets();
  const server = createServer((socket) => socket.on('error', () => {}));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  const proxy = await FaultProxy.start((server.address() as AddressInfo).port);
  const broken = new Promise<void>((resolve) => {
    const onAccepted = (message: unknown) => {
      const { socket } = message as { socket: Socket };
      if (socket.localPort !== proxy.port) return;
      unsubscribe(ACCEPTED, onAccepted);
      const whenEnding = () => (socket.writable ? process.nextTick(whenEnding) : resolve(breakOff(proxy)));
      socket.once('end', whenEnding);
    };
    subscribe(ACCEPTED, onAccepted);
  });
  connect(proxy.port, '127.0.0.1')
    .on('error', () => {})
    .end();
  await broken;
  await proxy.stop();
  await new Promise((resolve) => server.close(resolve));
  await eventually(() => openSockets() <= before);
});

it('the proxy of the fault tests keeps the order of bytes when it is healed', async () => {
  let echoed = 0;
  const server = createServer((socket) => {
    socket.on('data', (bytes) => socket.write(bytes, () => (echoed += 1)));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxy = await FaultProxy.start((server.address() as AddressInfo).port);
  const client = connect(proxy.port, '127.0.0.1');
  let received = '';
  client.on('data', (bytes) => (received += bytes.toString()));
  await once(client, 'connect');
  proxy.slow({ reply: 1_000 });
  client.write('late');
  await eventually(() => echoed === 1 && proxy.delays);
  proxy.heal();
  client.write(', then soon');
  await eventually(() => received === 'late, then soon');
  client.destroy();
  await proxy.stop();
  server.close();
});
