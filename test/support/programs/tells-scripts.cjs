// Required before a program, writes the addresses of the scripts that V8 has loaded by the end to the file LOADED.
const { writeFileSync } = require('node:fs');
const { Session } = require('node:inspector');

const session = new Session();
const urls = [];
session.connect();
session.on('Debugger.scriptParsed', ({ params }) => urls.push(params.url));
session.post('Debugger.enable');
process.once('exit', () => writeFileSync(process.env.LOADED, urls.join('\n')));
