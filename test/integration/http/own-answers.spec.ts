import 'reflect-metadata';
import { Controller, Get, type INestApplication, type LoggerService, Next, Res } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { DistributedLock, LockService, memory, RateLimit, RedisLockModule, Semaphore } from 'nest-redis-lock';
import { RecordingLogger } from '../../support/recording-logger.js';

interface Response {
  status(code: number): Response;
  send(body: string): unknown;
}

const once = { limit: 1, per: '1h' } as const;
const byItself = ({ args }: { args: readonly unknown[] }) => (args[0] as Response).status(423).send('by itself');
const later = async ({ args }: { args: readonly unknown[] }) => {
  await Promise.resolve();
  (args[0] as Response).status(423).send('later');
};
const byValue = () => ({ busy: true });

@Controller()
class Pages {
  @Get('lock')
  @DistributedLock('page', { wait: 0, onBusy: byItself })
  async lock(@Res() response: Response): Promise<void> {
    response.send('page');
  }

  @Get('lock-value')
  @DistributedLock('page', { wait: 0, onBusy: byValue })
  async lockValue(@Res() response: Response): Promise<void> {
    response.send('page');
  }

  @Get('limit')
  @RateLimit('page', { ...once, onLimit: later })
  async limit(@Res() response: Response): Promise<void> {
    response.send('page');
  }

  @Get('limit-value')
  @RateLimit('value', { ...once, onLimit: byValue })
  async limitValue(@Res() response: Response): Promise<void> {
    response.send('page');
  }

  @Get('permit')
  @Semaphore('inner', { permits: 1 })
  @DistributedLock('page', { wait: 0, onBusy: byItself })
  async permit(@Res() response: Response): Promise<void> {
    response.send('page');
  }

  @Get('passthrough')
  @DistributedLock('page', { wait: 0, onBusy: byValue })
  async passthrough(@Res({ passthrough: true }) _response: Response): Promise<object> {
    return { page: 1 };
  }
}

@Controller()
class Passed {
  @Get('next')
  @RateLimit('next', { ...once, onLimit: ({ args }) => (args[0] as () => void)() })
  async next(@Next() next: () => void): Promise<void> {
    next();
  }

  @Get('next-value')
  @RateLimit('next-value', { ...once, onLimit: byValue })
  async nextValue(@Next() next: () => void): Promise<void> {
    next();
  }
}

describe.each([
  ['Express', () => new ExpressAdapter(), [Pages, Passed]],
  ['Fastify', () => new FastifyAdapter(), [Pages]],
  ['Fastify with hooks', fastifyWithHooks, [Pages]],
] as const)('a handler that answers itself over %s', (_name, adapter, controllers) => {
  let app: INestApplication;
  let url: string;

  beforeAll(async () => {
    const module = {
      module: class Root {},
      imports: [RedisLockModule.forRoot({ backend: memory() })],
      controllers: [...controllers],
    };
    app = await NestFactory.create(module, adapter() as never, { logger: new RecordingLogger() as LoggerService });
    await app.listen(0, '127.0.0.1');
    url = (await app.getUrl()).replace('localhost', '127.0.0.1');
  });

  afterAll(() => app.close());

  const answer = async (path: string) => {
    const response = await fetch(`${url}/${path}`);
    return [response.status, await response.text()];
  };

  it('is answered by the function that answers in its place', async () => {
    expect(await answer('limit')).toEqual([200, 'page']);
    expect(await answer('limit')).toEqual([423, 'later']);
    await app.get(LockService).withLock('page', async () => {
      expect(await answer('lock')).toEqual([423, 'by itself']);
      expect(await answer('permit')).toEqual([423, 'by itself']);
      expect(await answer('passthrough')).toEqual([200, JSON.stringify({ busy: true })]);
    });
  });

  it('is answered with an error where the function only returns', async () => {
    expect(await answer('limit-value')).toEqual([200, 'page']);
    expect((await answer('limit-value'))[0]).toBe(500);
    await app.get(LockService).withLock('page', async () => {
      expect((await answer('lock-value'))[0]).toBe(500);
    });
  });

  if (!(controllers as readonly unknown[]).includes(Passed)) return;
  it('is left to the next handler where the function does so', async () => {
    expect([await answer('next'), await answer('next')].map(([status]) => status)).toEqual([404, 404]);
    expect([await answer('next-value'), await answer('next-value')].map(([status]) => status)).toEqual([404, 500]);
  });
});

/** Its answers go out later than they are given. */
function fastifyWithHooks(): FastifyAdapter {
  const adapter = new FastifyAdapter();
  const { addHook } = adapter.getInstance() as { addHook(name: string, hook: unknown): void };
  addHook.call(adapter.getInstance(), 'onSend', async (_request: unknown, _reply: unknown, payload: unknown) => {
    await new Promise(setImmediate);
    return payload;
  });
  return adapter;
}
