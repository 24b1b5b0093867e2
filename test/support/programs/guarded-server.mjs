// Starts a server under the guard that the command line names, and waits to be killed.
import { ServerProcess } from '../../../dist-sample/servers/server-process.js';

const server = await ServerProcess.start({
  command: 'sleep',
  args: ['600'],
  guard: process.argv[2],
  ready: async () => {},
});
console.log(`started ${server.pid}`);
setInterval(() => {}, 1_000);
