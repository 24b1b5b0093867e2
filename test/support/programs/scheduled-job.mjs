// Runs jobs of 1 ms by the clock of its machine, every `period` s, on one machine only. Times are of the monotonic
// clock that all processes of the machine share.
import { NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { RedisLockModule, ScheduledLock } from 'nest-redis-lock';

const [, , port, period, atLeastFor, jobs] = process.argv;

const tick = () => Math.round(Date.now() / 1_000 / Number(period));
const monotonic = () => Number(process.hrtime.bigint() / 1_000_000n);
const NAMES = Array.from({ length: Number(jobs) }, (_, index) => `job${index}`);

class Jobs {}
for (const name of NAMES) {
  Jobs.prototype[name] = async function (now) {
    console.log(`ran ${JSON.stringify({ tick: now, name, at: monotonic() })}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  };
  decorate(Jobs, name, ScheduledLock(name, { atMostFor: '5m', atLeastFor: Number(atLeastFor) }));
}

class Machine {
  constructor(all) {
    this.all = all;
  }

  async tick() {
    const now = tick();
    const from = monotonic();
    await Promise.all(NAMES.map((name) => this.all[name](now)));
    console.log(`looked ${JSON.stringify({ tick: now, from, to: monotonic() })}`);
  }
}
decorate(Machine, 'tick', Cron(`*/${period} * * * * *`));

function decorate(target, method, decorator) {
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, method);
  decorator(target.prototype, method, descriptor);
  Object.defineProperty(target.prototype, method, descriptor);
}

const imports = [ScheduleModule.forRoot(), RedisLockModule.forRoot({ redis: { port: Number(port) } })];
const machine = { provide: Machine, inject: [Jobs], useFactory: (all) => new Machine(all) };
class Root {}
const app = await NestFactory.createApplicationContext(
  { module: Root, imports, providers: [Jobs, machine] },
  { logger: ['warn', 'error'] },
);
console.log('ready');
process.once('SIGTERM', () => void app.close().then(() => process.exit()));
