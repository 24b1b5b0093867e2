import 'reflect-metadata';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';
import {
  Catch,
  HttpException,
  HttpStatus,
  Logger,
  Module,
  ValidationPipe,
  type ArgumentsHost,
  type DynamicModule,
  type ExceptionFilter,
} from '@nestjs/common';
import { APP_FILTER, NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type { Environment } from '../environment.js';
import type { DemoOptions } from '../options.js';
import { LiveShop } from './live-shop.js';
import { LiveController, Viewers } from './live.controller.js';
import { LivePage } from './page/live-page.js';

/** Folders with files for the browser. */
const BROWSER = fileURLToPath(new URL('page/browser', import.meta.url));
const CHARTS = fileURLToPath(new URL('.', import.meta.resolve('chart.js')));

/** What the page may load: only its own files. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

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
        { provide: APP_FILTER, useClass: RefusalFilter },
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

/**
 * Refuses what another site makes a browser on this machine send. A name of that site may resolve to 127.0.0.1, so the
 * host is checked, too.
 */
function ownOriginOnly(request: IncomingMessage, response: ServerResponse, next: () => void): void {
  const port = request.socket.localPort;
  const hosts = [`127.0.0.1:${port}`, `localhost:${port}`];
  const { host = '', origin, 'sec-fetch-site': site } = request.headers;
  const forbid = (message: string) => refuse(response, 403, 'FOREIGN_ORIGIN', message);
  if (!hosts.includes(host)) return forbid(`This page is http://${hosts[0]}/, not ${host}`);
  const changes = request.method !== 'GET' && request.method !== 'HEAD';
  if (changes && origin !== undefined && origin !== `http://${host}`) return forbid(foreign(origin));
  if (changes && site !== undefined && site !== 'same-origin') return forbid(foreign(`a ${site} page`));
  response.setHeader('Content-Security-Policy', POLICY);
  response.setHeader('X-Content-Type-Options', 'nosniff');
  response.setHeader('Referrer-Policy', 'no-referrer');
  response.setHeader('Cache-Control', 'no-cache');
  next();
}

function foreign(sender: string): string {
  return `Only the page itself can change something; this request comes from ${sender}`;
}

/** Answers every error with one message, which the page shows. */
@Catch()
class RefusalFilter implements ExceptionFilter {
  private readonly logger = new Logger('LivePage');

  catch(error: unknown, context: ArgumentsHost): void {
    const response = context.switchToHttp().getResponse<ServerResponse>();
    const { status, message } = refusalOf(error);
    if (status >= 500 && !(error instanceof HttpException)) this.logger.error(error);
    if (response.headersSent) response.end();
    else refuse(response, status, HttpStatus[status] ?? `HTTP_${status}`, message);
  }
}

function refusalOf(error: unknown): { status: number; message: string } {
  if (error instanceof HttpException) {
    // Several messages where the validation refuses several properties.
    const { message } = error.getResponse() as { readonly message: string | readonly string[] };
    return { status: error.getStatus(), message: [message].flat().join('; ') };
  }
  // A request that Express could not read.
  const { statusCode: status, message } = (error ?? {}) as { statusCode?: unknown; message?: unknown };
  if (typeof status === 'number' && status >= 400 && status < 500) return { status, message: String(message) };
  return { status: 500, message: 'The shop failed. The outcome of the request is unknown.' };
}

function refuse(response: ServerResponse, statusCode: number, code: string, message: string): void {
  response.writeHead(statusCode, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify({ statusCode, code, message }));
}
