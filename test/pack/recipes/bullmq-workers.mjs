import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { BullModule, getQueueToken } from '@nestjs/bullmq';
import { QueueEvents } from 'bullmq';
import { LockService } from 'nest-redis-lock';
import { OrderQueue } from './bullmq-workers/src/order-queue.js';
import { Carrier, OrdersProcessor, Shipping } from './bullmq-workers/src/orders.processor.js';
import { eventually, startWith, url } from './kit.mjs';

const connection = { host: new URL(url).hostname, port: Number(new URL(url).port) };
const booked = [];
let inside = 0;
let most = 0;
const carrier = {
  book: async (orderId) => {
    most = Math.max(most, ++inside);
    await new Promise((resolve) => setTimeout(resolve, 20));
    inside--;
    booked.push(orderId);
    return `parcel of ${orderId}`;
  },
};
const worker = () =>
  startWith({
    imports: [BullModule.forRoot({ connection }), BullModule.registerQueue({ name: 'orders' })],
    providers: [OrdersProcessor, OrderQueue, Shipping, { provide: Carrier, useValue: carrier }],
  });
const workers = [await worker(), await worker()];
const queue = workers[0].get(getQueueToken('orders'));
const events = new QueueEvents('orders', { connection });
after(() => events.close());
await events.waitUntilReady();

test('jobs of one order run one after the other, and the order is booked once', async () => {
  const jobs = await Promise.all(Array.from({ length: 6 }, () => queue.add('ship', { id: '7' }, { attempts: 5 })));
  const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(events)));
  assert.deepEqual(results, Array(6).fill('parcel of 7'));
  assert.deepEqual(booked, ['7']);
  assert.equal(most, 1);
});

test('a job that finds its order busy fails, and succeeds with its next attempt', async () => {
  const held = await workers[0].get(LockService).acquire('order:8');
  await workers[0].get(OrderQueue).ship('8');
  const [job] = await eventually(async () => {
    const delayed = await queue.getDelayed();
    return delayed.length > 0 && delayed;
  });
  assert.match(job.failedReason, /order:8/);
  assert.equal(booked.includes('8'), false);
  await held.release();
  assert.equal(await job.waitUntilFinished(events), 'parcel of 8');
});

test('BullMQ keeps one of two jobs with one jobId', async () => {
  await queue.pause();
  const add = () => queue.add('ship', { id: '9' }, { jobId: 'ship-9' });
  await Promise.all([add(), add()]);
  assert.equal(await queue.getJobCountByTypes('paused', 'waiting'), 1);
  await queue.resume();
});
