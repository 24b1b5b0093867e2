import { Injectable, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Idempotent, memory, RedisLockModule } from 'nest-redis-lock';
import { RecordingLogger } from '../../support/recording-logger.js';

@Injectable()
class Mistaken {
  @Idempotent('payment:<0>')
  async pay(_id: string): Promise<void> {}

  @Idempotent('payment:<0>')
  async refund(_id: string): Promise<void> {}

  @Idempotent('order')
  async place(_id: string): Promise<void> {}
}

@Injectable()
class Meant {
  @Idempotent('sale:<0>')
  async sell(_id: string): Promise<void> {}

  @Idempotent('start')
  async start(): Promise<void> {}

  @Idempotent('import', { fingerprint: '<#0>' })
  async import(_file: string): Promise<void> {}

  @Idempotent(() => 'once')
  async once(_by: string): Promise<void> {}
}

async function warningsOf(provider: Type): Promise<string[]> {
  class Root {}
  const logger = new RecordingLogger();
  const imports = [RedisLockModule.forRoot({ backend: memory() })];
  const app = await NestFactory.createApplicationContext({ module: Root, imports, providers: [provider] }, { logger });
  await app.close();
  return logger.matching(/idempotent under one key/);
}

it('warns of methods that repeat the results of others', async () => {
  expect(await warningsOf(Mistaken)).toEqual([
    'Mistaken.pay and Mistaken.refund are idempotent under one key template, "payment:<0>", so each repeats what the ' +
      'other has answered: give each a key of its own',
    'Mistaken.place is idempotent under one key, "order", whatever its arguments are, so each call repeats the first: ' +
      `name them in it, as in "order:<0>"; where that is meant, give () => 'order'`,
  ]);
});

it('does not warn where each call has a key or a fingerprint of its own, or that is meant', async () => {
  expect(await warningsOf(Meant)).toEqual([]);
});
