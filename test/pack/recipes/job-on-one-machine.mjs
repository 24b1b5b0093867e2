import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { LockService } from 'nest-redis-lock';
import { connect, eventually, gate, startWith } from './kit.mjs';
import { Mailer, Reports } from './job-on-one-machine/src/reports.js';

const machine = (sendReport) =>
  startWith({
    imports: [ScheduleModule.forRoot()],
    providers: [Reports, { provide: Mailer, useValue: { sendReport } }],
  });
const tick = (app) => app.get(SchedulerRegistry).getCronJob('nightly-report').fireOnTick();

const redis = connect();
beforeEach(() => redis.flushall());

test('one of four machines sends the report, also when the clock of one is late', async () => {
  let sent = 0;
  const machines = await Promise.all([1, 2, 3, 4].map(() => machine(async () => void sent++)));
  const [first, second, third, late] = machines;
  assert.equal(await first.get(Reports).lastNight(), 'never');
  await Promise.all([first, second, third].map(tick));
  await eventually(async () => /^succeeded at .* on /.test(await first.get(Reports).lastNight()));
  await tick(late);
  await late.get(Reports).send();
  assert.equal(sent, 1);
});

test('lastRun tells of the job that throws; a plain lock would run it again at once', async () => {
  const [one, two] = await Promise.all([
    machine(async () => {
      throw new Error('no paper');
    }),
    machine(async () => {}),
  ]);
  await assert.rejects(one.get(Reports).send(), /no paper/);
  assert.match(await two.get(Reports).lastNight(), /^failed/);
  let runs = 0;
  for (const app of [one, two]) await app.get(LockService).withLock('plain', { wait: 0 }, async () => void runs++);
  assert.equal(runs, 2);
});

test('the job has the signal of the lock', async () => {
  const sending = gate();
  let signal;
  const app = await machine(async (given) => {
    signal = given;
    await sending.pass();
  });
  const run = app.get(Reports).send();
  await sending.entered;
  assert.equal(signal.aborted, false);
  sending.open();
  await run;
});
