// Runs a program of dist-sample in this process, and builds first what is out of date. Without a shell in between,
// which would not pass signals on: node sample-app/run.mjs shop/main.js
import { fileURLToPath } from 'node:url';
import { buildWhatIsOutOfDate } from '../tools/build.mjs';

const [name, ...args] = process.argv.slice(2);
await buildWhatIsOutOfDate();
const program = new URL(`../dist-sample/${name}`, import.meta.url);
process.argv = [process.argv[0], fileURLToPath(program), ...args];
await import(program.href);
