// Starts an application with what most programs load, and keeps what V8 has compiled by then: see ../programs.mjs.
import 'reflect-metadata';
import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ScheduleModule } from '@nestjs/schedule';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { TerminusModule } from '@nestjs/terminus';
import { Redis } from 'ioredis';
import { CacheService, LockService, memory, RedisLockModule } from 'nest-redis-lock';
import { RedisLockMetricsModule } from 'nest-redis-lock/prometheus';
import pg from 'pg';
import { Registry } from 'prom-client';
// Beside the copy of this program.
const { keepCompiled } = await import(new URL('../../../load.mjs', import.meta.url).href);

class Root {}

const imports = [
  RedisLockModule.forRoot({ backend: memory(), cache: {} }),
  RedisLockMetricsModule.forRoot({ registry: new Registry() }),
  ScheduleModule.forRoot(),
  TerminusModule,
];
const app = await NestFactory.create({ module: Root, imports }, { logger: ['error'] });
app.useGlobalPipes(new ValidationPipe({ transform: true }));
SwaggerModule.setup('docs', app, () => SwaggerModule.createDocument(app, new DocumentBuilder().build()));
await app.listen(0, '127.0.0.1');
await app.get(LockService).withLock('name', async () => {});
await app.get(CacheService).getOrSet('key', async () => 1, { ttl: 1_000 });
await fetch(await app.getUrl());
new Redis({ lazyConnect: true }).disconnect();
await new pg.Pool().end();
await keepCompiled();
await app.close();
