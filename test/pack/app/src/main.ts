import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { AppModule } from './app.module.js';

async function main(): Promise<void> {
  const adapter = process.env['HTTP_ADAPTER'] === 'fastify' ? new FastifyAdapter() : new ExpressAdapter();
  const app = await NestFactory.create(AppModule, adapter, { logger: ['warn', 'error'] });
  app.enableShutdownHooks();
  await app.listen(0, '127.0.0.1');
  console.log(`listening on ${await app.getUrl()}`);
}

void main();
