import 'reflect-metadata';
import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { ShopModule } from './shop.module.js';
import { settingsFromEnvironment, type Settings } from './settings.js';
import { startFailure } from './start-failure.js';

let settings: Settings;
try {
  settings = settingsFromEnvironment();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}
try {
  await start(settings);
} catch (error) {
  console.error(startFailure(error, settings));
  process.exit(1);
}

async function start({ port }: Settings): Promise<void> {
  const app = await NestFactory.create(ShopModule.with(settings), {
    logger: ['error', 'warn'],
    abortOnError: false,
    // Buffered until the shop listens: if the start fails, one line says why.
    bufferLogs: true,
    autoFlushLogs: false,
  });
  app.useGlobalPipes(new ValidationPipe({ whitelist: true, forbidNonWhitelisted: true, transform: true }));
  // Requests in flight at SIGTERM are answered first, and their locks are released.
  app.enableShutdownHooks([], { useProcessExit: true });

  const description = new DocumentBuilder()
    .setTitle('The shop')
    .setDescription('Sells what it has, and never more: the same deduction with six ways of guarding it')
    .build();
  SwaggerModule.setup('docs', app, () => SwaggerModule.createDocument(app, description));

  await app.listen(port);
  app.flushLogs();
  console.log(`shop listening on ${(await app.getUrl()).replace('[::1]', '127.0.0.1')}`);
}
