// An instance of the function, in a process of its own.
import { handler } from './src/handler.js';

process.send({ answer: await handler({ orderId: process.argv[2] }) });
