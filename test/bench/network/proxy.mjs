// A network between clients and a server of this machine, in a process of its own: each direction takes `delay` ms.
// Counts what clients send. Arguments: the port of the server, the delay. Tells its parent its port, and answers its
// questions.
import { connect, createServer } from 'node:net';

const [target, delay] = process.argv.slice(2).map(Number);
/** Nothing follows an answer after this silence (ms), which counts from the end of a round trip. */
const SILENCE = 4;
/** Timers of Node.js may be late by this time (ms): the end of a delay needs a closer look. */
const COARSE = 2;

/** What is on its way, in the order in which it arrives. */
const underWay = [];
const counts = { writes: 0, commands: 0 };
let heardAt = 0;
let delivering = false;

const listener = createServer({ noDelay: true }, (client) => {
  const server = connect({ host: '127.0.0.1', port: target, noDelay: true });
  const commands = commandCounter();
  for (const [from, to] of [
    [client, server],
    [server, client],
  ]) {
    from.on('error', () => {}).once('close', () => to.destroy());
    from.on('data', (bytes) => {
      heardAt = performance.now();
      if (from === client) {
        counts.writes += 1;
        counts.commands += commands(bytes);
      }
      underWay.push({ to, bytes, at: heardAt + delay });
      deliver();
    });
  }
});

process.on('disconnect', () => process.exit());
process.on('message', answerOnceSettled);
listener.listen(0, '127.0.0.1', () => process.send({ port: listener.address().port }));

function answerOnceSettled() {
  const settled = underWay.length === 0 && performance.now() - heardAt > 2 * delay + SILENCE;
  if (settled) process.send(counts);
  else setTimeout(answerOnceSettled, 1);
}

function deliver() {
  if (!delivering) deliverNext();
}

function deliverNext() {
  while (underWay.length > 0 && underWay[0].at <= performance.now()) {
    const { to, bytes } = underWay.shift();
    if (!to.destroyed) to.write(bytes);
  }
  delivering = underWay.length > 0;
  if (!delivering) return;
  const left = underWay[0].at - performance.now();
  if (left > COARSE) setTimeout(deliverNext, left - COARSE);
  else setImmediate(deliverNext);
}

/** Counts the commands that begin in the bytes of one connection, which are arrays of strings in RESP. */
function commandCounter() {
  let skip = 0;
  let line = '';
  return (bytes) => {
    let begun = 0;
    for (let at = 0; at < bytes.length;) {
      if (skip > 0) {
        const skipped = Math.min(skip, bytes.length - at);
        skip -= skipped;
        at += skipped;
        continue;
      }
      const end = bytes.indexOf('\n', at);
      line += bytes.toString('latin1', at, end < 0 ? bytes.length : end + 1);
      if (end < 0) break;
      at = end + 1;
      if (line.startsWith('*')) begun += 1;
      else if (line.startsWith('$')) skip = Number(line.slice(1)) + 2;
      line = '';
    }
    return begun;
  };
}
