import type { ServerResponse } from 'node:http';
import { Body, Controller, Get, Header, HttpCode, Inject, Param, ParseIntPipe, Post, Res } from '@nestjs/common';
import { LiveShop } from '../live-shop.js';
import { LivePage } from '../page/live-page.js';
import { SaleDto } from './sale.dto.js';
import { Viewers } from './viewers.js';

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
