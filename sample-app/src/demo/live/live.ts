import 'reflect-metadata';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Module, ValidationPipe, type DynamicModule } from '@nestjs/common';
import { APP_FILTER, NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { ErrorBodyFilter } from '../../errors/error-body.filter.js';
import type { Environment } from '../environment.js';
import type { DemoOptions } from '../options.js';
import { LiveController } from './http/live.controller.js';
import { ownOriginOnly } from './http/own-origin.js';
import { Viewers } from './http/viewers.js';
import { LiveShop } from './live-shop.js';
import { LivePage } from './page/live-page.js';

const BROWSER = fileURLToPath(new URL('page/browser', import.meta.url));
const CHARTS = fileURLToPath(new URL('.', import.meta.resolve('chart.js')));

@Module({})
class LiveModule {
  static with(shop: LiveShop, viewers: Viewers, options: DemoOptions): DynamicModule {
    return {
      module: LiveModule,
      controllers: [LiveController],
      providers: [
        { provide: LiveShop, useValue: shop },
        { provide: Viewers, useValue: viewers },
        { provide: LivePage, useValue: new LivePage(options) },
        { provide: APP_FILTER, useClass: ErrorBodyFilter },
      ],
    };
  }
}

/** Serves the live page until the demo is ended. */
export async function serveLive(environment: Environment, options: DemoOptions): Promise<void> {
  const { instances, backend, live: port = 0 } = options;
  console.error('Starting Redis, PostgreSQL and the processes of the shop');
  await environment.startServers(instances, backend);
  if (environment.ended) return;
  const viewers: Viewers = new Viewers(() => {
    const present = shop.present();
    return { ...present, state: { ...present.state, viewers: viewers.count } };
  });
  const shop = new LiveShop(environment, (event) => viewers.send(event));
  await shop.open(instances, backend);
  const application = await NestFactory.create<NestExpressApplication>(LiveModule.with(shop, viewers, options), {
    logger: ['error', 'warn'],
    abortOnError: false,
  });
  application.use(ownOriginOnly);
  application.useStaticAssets(BROWSER, { prefix: '/browser/', index: false });
  application.useStaticAssets(CHARTS, { prefix: '/charts/', index: false });
  application.useGlobalPipes(
    new ValidationPipe({ whitelist: true, forbidNonWhitelisted: true, transform: true, stopAtFirstError: true }),
  );
  await application.listen(port, '127.0.0.1');
  console.log(`The page is at ${await application.getUrl()}/ (Ctrl-C ends the demo)`);
  if (!environment.ended) await once(environment.signal, 'abort');
  viewers.close();
  await Promise.all([application.close(), shop.close()]);
}
