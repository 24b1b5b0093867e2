import 'reflect-metadata';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Controller, Get, Inject, Injectable, Param, Scope, type INestApplication } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  PermitLostError,
  PrimitiveConfigError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  Semaphore,
  SemaphoreService,
  SemaphoreTimeoutError,
  type NoPermitCall,
} from 'nest-redis-lock';
import { RedisLockTestingModule, wire } from 'nest-redis-lock/testing';
import { firstValueFrom, Observable, toArray } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';

const gates = new Map<string, Gate>();
let running = 0;

function gateOf(id: string): Gate {
  let gate = gates.get(id);
  if (!gate) gates.set(id, (gate = new Gate()));
  return gate;
}

async function work(id: string): Promise<string> {
  running += 1;
  await gateOf(id).opened;
  running -= 1;
  return id;
}

@Injectable()
class Reports {
  constructor(@Inject(SemaphoreService) readonly semaphores: SemaphoreService) {}

  @Semaphore('report:<0>', { permits: 2, wait: '30s' })
  make(id: string): Promise<string> {
    return work(id);
  }

  @Semaphore('report:<0.id>', { permits: 1, wait: 0, onBusy: 'skip' })
  async skipped(report: { id: string }): Promise<string | undefined> {
    return work(report.id);
  }

  @Semaphore((id: string) => `report:${id}`, { permits: 1, wait: 0, onBusy: (busy) => describeBusy(busy) })
  replaced(id: string): Promise<unknown> {
    return work(id);
  }

  @Semaphore(() => '', { permits: 1 })
  async unnamed(): Promise<void> {}

  @Semaphore('stream:<0>', { permits: 1, wait: 0 })
  stream(id: string): Observable<string> {
    return new Observable((subscriber) => {
      subscriber.next('began');
      void gateOf(id).opened.then(() => subscriber.complete());
    });
  }

  @Semaphore('node:<0>', { permits: 1, wait: 0 })
  async nodeStream(id: string): Promise<Readable> {
    return Readable.from(
      (async function* () {
        yield 'began';
        await gateOf(id).opened;
      })(),
    );
  }

  @Semaphore('current:<0>', { permits: 5, count: 2 })
  async current(_id: string): Promise<readonly unknown[]> {
    const permit = this.semaphores.current();
    return [permit?.key, permit?.count, permit?.held];
  }
}

@Controller({ path: 'reports', scope: Scope.REQUEST })
class ReportController {
  @Get(':id')
  @Semaphore('http:<0>', { permits: 1, wait: 0 })
  get(@Param('id') id: string): Promise<string> {
    return work(id);
  }
}

function describeBusy({ keys, args, error }: NoPermitCall): unknown {
  return [keys, args, error.permits];
}

describe('@Semaphore', () => {
  let app: INestApplication;
  let reports: Reports;
  let semaphores: SemaphoreService;

  beforeAll(async () => {
    const module = Test.createTestingModule({
      imports: [RedisLockTestingModule.forRoot()],
      providers: [Reports],
      controllers: [ReportController],
    });
    app = (await module.compile()).createNestApplication({ logger: false });
    await app.listen(0, '127.0.0.1');
    [reports, semaphores] = [app.get(Reports), app.get(SemaphoreService)];
  });
  afterAll(() => app.close());

  it('lets at most `permits` calls of a key run, and the next one when one has ended', async () => {
    const calls = [1, 2, 3].map(() => reports.make('a'));
    await eventually(() => running === 2);
    expect(await semaphores.available('report:a')).toBe(0);
    await expect(semaphores.acquire('report:a', { permits: 2, wait: 0 })).rejects.toThrow(SemaphoreTimeoutError);
    gateOf('a').open();
    expect(await Promise.all(calls)).toEqual(['a', 'a', 'a']);
    expect(await semaphores.available('report:a')).toBe(2);
  });

  it('skips a call, or lets a function answer it', async () => {
    const first = reports.skipped({ id: 'b' });
    await eventually(() => running === 1);
    expect(await reports.skipped({ id: 'b' })).toBeUndefined();
    expect(await reports.replaced('b')).toEqual([['report:b'], ['b'], 1]);
    gateOf('b').open();
    expect(await first).toBe('b');
  });

  it('keeps the permit until an Observable has completed or its reader has left', async () => {
    const read = firstValueFrom(reports.stream('c').pipe(toArray()));
    await eventually(async () => (await semaphores.available('stream:c')) === 0);
    await expect(firstValueFrom(reports.stream('c'))).rejects.toThrow(SemaphoreTimeoutError);
    gateOf('c').open();
    expect(await read).toEqual(['began']);
    await eventually(async () => (await semaphores.available('stream:c')) === 1);
    expect(await firstValueFrom(reports.stream('d'))).toBe('began');
    await eventually(async () => (await semaphores.available('stream:d')) === 1);
  });

  it('keeps the permit until a Node.js stream has ended', async () => {
    const stream = await reports.nodeStream('e');
    await expect(reports.nodeStream('e')).rejects.toThrow(SemaphoreTimeoutError);
    gateOf('e').open();
    expect(await text(stream)).toBe('began');
    await eventually(async () => (await semaphores.available('node:e')) === 1);
  });

  it('makes the permit the current one', async () => {
    expect(await reports.current('f')).toEqual(['current:f', 2, true]);
  });

  it('answers HTTP requests without a permit with 429 and Retry-After, also in request scope', async () => {
    const url = `${await app.getUrl()}/reports/g`;
    const first = fetch(url);
    await eventually(() => running === 1);
    const second = await fetch(url);
    expect(second.status).toBe(429);
    expect(second.headers.get('retry-after')).toBe('1');
    expect(await second.json()).toEqual({
      statusCode: 429,
      error: 'Too Many Requests',
      message: 'Too many requests run at the same time. Try again later.',
      code: 'SEMAPHORE_TIMEOUT',
    });
    gateOf('g').open();
    expect((await first).status).toBe(200);
  });

  it('refuses keys that name the wrong thing', async () => {
    await expect(reports.make(undefined as never)).rejects.toThrow(PrimitiveKeyError);
    await expect(reports.unnamed()).rejects.toThrow(PrimitiveKeyError);
  });

  it('refuses wrong options where it is written', () => {
    expect(() => Semaphore('a', undefined as never)).toThrow(PrimitiveConfigError);
    expect(() => Semaphore('a', { permits: 0 })).toThrow('Option "permits" is 0');
    expect(() => Semaphore('a', { permits: 1, onBusy: 'wait' as never })).toThrow('Option "onBusy" is "wait"');
    expect(() => Semaphore('a:<0.*.b>', { permits: 1 })).toThrow('yields a key for each element');
  });

  it('works on instances made with new once they are wired, and fails closed before', async () => {
    const bare = new Reports(semaphores);
    await expect(bare.make('h')).rejects.toThrow(PrimitiveNotWiredError);
    gateOf('h').open();
    expect(await wire(new Reports(semaphores)).make('h')).toBe('h');
  });
});

describe('SemaphoreService at the end of the application', () => {
  it('refuses waiters at once, lets holders finish, and takes permits away after `shutdownGrace`', async () => {
    const imports = [RedisLockTestingModule.forRoot({ shutdownGrace: 300 })];
    const module = await Test.createTestingModule({ imports }).setLogger(new RecordingLogger()).compile();
    await module.init();
    const semaphores = module.get(SemaphoreService);
    const quick = await semaphores.acquire('end', { permits: 2 });
    const slow = await semaphores.acquire('end', { permits: 2 });
    const { signal } = slow;
    const waiting = semaphores.acquire('end', { permits: 2, wait: '30s' });
    waiting.catch(() => {});
    const closing = module.close();
    await expect(waiting).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
    await expect(semaphores.acquire('end', { permits: 2 })).rejects.toThrow('the application is shutting down');
    expect(quick.held).toBe(true);
    await quick.release();
    await closing;
    expect(signal.reason).toBeInstanceOf(PermitLostError);
    expect(signal.reason).toMatchObject({ reason: 'shutdown', code: 'PERMIT_LOST', statusCode: 500 });
    expect(semaphores.closed).toBe(true);
  });
});
