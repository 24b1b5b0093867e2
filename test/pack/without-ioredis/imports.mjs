import 'reflect-metadata';
import * as nest from '@nestjs/core';
import * as locks from 'nest-redis-lock';
import { run } from './application.cjs';

await run(nest, locks);
