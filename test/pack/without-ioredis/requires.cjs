require('reflect-metadata');
const { run } = require('./application.cjs');

void run(require('@nestjs/core'), require('nest-redis-lock'));
