// Runs a job of 1 ms by the clock of its machine, which is `shift` ms ahead, every `period` s, on one machine only.
const [, , port, shift, period, minHold] = process.argv;

const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...args) {
    if (args.length > 0) super(...args);
    else super(globalThis.Date.now());
  }

  static now() {
    return RealDate.now() + Number(shift);
  }
};

const { Cron, ScheduleModule } = await import('@nestjs/schedule');
const { NestFactory } = await import('@nestjs/core');
const { DistributedLock, RedisLockModule } = await import('nest-redis-lock');

const say = (word) => console.log(`${word} ${Math.round(Date.now() / 1_000 / Number(period))}`);

class Machine {
  constructor(job) {
    this.job = job;
  }

  async tick() {
    say('tick');
    await this.job.run();
  }
}
class Job {
  async run() {
    say('ran');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

function decorate(target, method, decorator) {
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, method);
  decorator(target.prototype, method, descriptor);
  Object.defineProperty(target.prototype, method, descriptor);
}
decorate(Job, 'run', DistributedLock('nightly-report', { wait: 0, onBusy: 'skip', ...(minHold && { minHold }) }));
decorate(Machine, 'tick', Cron(`*/${period} * * * * *`));

const imports = [ScheduleModule.forRoot(), RedisLockModule.forRoot({ redis: { port: Number(port) } })];
const machine = { provide: Machine, inject: [Job], useFactory: (job) => new Machine(job) };
class Root {}
const app = await NestFactory.createApplicationContext(
  { module: Root, imports, providers: [Job, machine] },
  { logger: false },
);
say('ready');
process.once('SIGTERM', () => void app.close().then(() => process.exit()));
