import type { ServerResponse } from 'node:http';
import {
  applyDecorators,
  Body,
  Controller,
  Get,
  Header,
  HttpCode,
  Inject,
  Param,
  ParseIntPipe,
  Post,
  Res,
} from '@nestjs/common';
import { IsIn, IsInt, Max, Min } from 'class-validator';
import { SALE_LIMITS } from '../options.js';
import { ALL_STRATEGIES, LOCK_BACKENDS, type LockBackendName, type Strategy } from '../shop-facts.js';
import { LiveShop } from './live-shop.js';
import type { LiveEvents, SaleSettings } from './live-state.js';
import { LivePage } from './page/live-page.js';

/** Milliseconds after which a page connects again. */
const RETRY = 500;

/**
 * The open pages, as receivers of server-sent events. A page that does not read (its tab is suspended) misses events
 * instead of filling memory, and gets the present data when it reads again.
 */
export class Viewers {
  private readonly reading = new Set<ServerResponse>();
  private readonly behind = new Set<ServerResponse>();

  constructor(private readonly present: () => LiveEvents) {}

  get count(): number {
    return this.reading.size;
  }

  add(response: ServerResponse): void {
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    response.write(`retry: ${RETRY}\n\n`);
    this.reading.add(response);
    response.on('drain', () => {
      if (this.behind.delete(response)) response.write(this.everything());
    });
    response.once('close', () => {
      this.reading.delete(response);
      this.behind.delete(response);
      this.send('state');
    });
    response.write(this.everything());
    this.send('state');
  }

  send(event: keyof LiveEvents): void {
    if (this.reading.size === 0) return;
    const text = textOf(event, this.present());
    for (const response of this.reading) {
      if (response.writableNeedDrain) this.behind.add(response);
      else response.write(text);
    }
  }

  close(): void {
    for (const response of this.reading) response.end();
  }

  private everything(): string {
    const present = this.present();
    return (['course', 'results', 'log', 'state'] as const).map((event) => textOf(event, present)).join('');
  }
}

function textOf(event: keyof LiveEvents, present: LiveEvents): string {
  return `event: ${event}\ndata: ${JSON.stringify(present[event])}\n\n`;
}

/** A sale that the page asks for. The numbers have the limits of the command line. */
class SaleDto implements SaleSettings {
  @IsIn(ALL_STRATEGIES)
  strategy!: Strategy;

  @IsIn(LOCK_BACKENDS)
  backend!: LockBackendName;

  @WithinLimits('instances')
  instances!: number;

  @WithinLimits('stock')
  stock!: number;

  @WithinLimits('orders')
  orders!: number;

  @WithinLimits('concurrency')
  concurrency!: number;
}

@Controller()
export class LiveController {
  constructor(
    @Inject(LiveShop) private readonly shop: LiveShop,
    @Inject(LivePage) private readonly page: LivePage,
    @Inject(Viewers) private readonly viewers: Viewers,
  ) {}

  @Get()
  @Header('Content-Type', 'text/html; charset=utf-8')
  document(): string {
    return this.page.document;
  }

  @Get('styles.css')
  @Header('Content-Type', 'text/css; charset=utf-8')
  styles(): string {
    return this.page.styles;
  }

  @Get('events')
  events(@Res() response: ServerResponse): void {
    this.viewers.add(response);
  }

  @Post('sales')
  @HttpCode(202)
  start(@Body() settings: SaleDto): void {
    this.shop.start(settings);
  }

  @Post('sales/stop')
  @HttpCode(202)
  stop(): void {
    this.shop.stop();
  }

  @Post('processes/:number/freeze')
  @HttpCode(204)
  freeze(@Param('number', ParseIntPipe) number: number): Promise<void> {
    return this.shop.freeze(number);
  }

  @Post('processes/:number/cut-off')
  @HttpCode(204)
  cutOff(@Param('number', ParseIntPipe) number: number): Promise<void> {
    return this.shop.cutOff(number);
  }

  @Post('processes/:number/kill')
  @HttpCode(204)
  kill(@Param('number', ParseIntPipe) number: number): Promise<void> {
    return this.shop.kill(number);
  }

  @Post('processes/:number/repair')
  @HttpCode(204)
  repair(@Param('number', ParseIntPipe) number: number): Promise<void> {
    return this.shop.repair(number);
  }

  @Post('holder/freeze')
  @HttpCode(204)
  freezeHolder(): Promise<void> {
    return this.shop.freezeHolder();
  }

  @Post('redis/stop')
  @HttpCode(204)
  stopRedis(): Promise<void> {
    return this.shop.stopRedis();
  }

  @Post('redis/start')
  @HttpCode(204)
  startRedis(): Promise<void> {
    return this.shop.startRedis();
  }
}

function WithinLimits(name: keyof typeof SALE_LIMITS): PropertyDecorator {
  const [least, most] = SALE_LIMITS[name];
  const rule = { message: `${name}: give a whole number from ${least} to ${most}` };
  return applyDecorators(IsInt(rule), Min(least, rule), Max(most, rule));
}
