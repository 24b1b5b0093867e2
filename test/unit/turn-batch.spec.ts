import { setImmediate as turn } from 'node:timers/promises';
import { type Lanes, TurnBatch } from '../../lib/backends/batch.js';
import { eventually } from '../support/eventually.js';

interface Sent {
  readonly requests: readonly number[];
  answer(): void;
  fail(error: Error): void;
}

function batchOf({ most = 100, ...lanes }: Lanes & { most?: number } = {}) {
  const sent: Sent[] = [];
  const answers: (number | string)[] = [];
  const batch = new TurnBatch<number, number>(
    (requests, answered, failed) => {
      sent.push({ requests, answer: () => answered(requests.map((request) => 10 * request)), fail: failed });
    },
    most,
    lanes,
  );
  const add = (...requests: number[]) => {
    for (const request of requests) {
      batch.add(request).then(
        (answer) => answers.push(answer),
        (error) => answers.push(String(error)),
      );
    }
  };
  return { add, answers, sent, requests: () => sent.map((each) => each.requests) };
}

it('sends a single request at once, and those of one turn together', async () => {
  const { add, requests } = batchOf();
  add(1);
  expect(requests()).toEqual([[1]]);
  add(2, 3);
  expect(requests()).toEqual([[1]]);
  await turn();
  expect(requests()).toEqual([[1], [2, 3]]);
});

it('sends the first request of a turn with the others while several come at a time', async () => {
  const { add, sent, requests } = batchOf();
  add(1);
  add(2, 3);
  await turn();
  sent.splice(0).forEach(({ answer }) => answer());
  add(4, 5);
  expect(requests()).toEqual([]);
  await turn();
  expect(requests()).toEqual([[4, 5]]);
  sent.splice(0).forEach(({ answer }) => answer());
  add(6);
  await turn();
  sent.splice(0).forEach(({ answer }) => answer());
  add(7);
  expect(requests()).toEqual([[7]]);
});

it('sends no more requests together than the most', async () => {
  const { add, requests } = batchOf({ most: 2 });
  add(1, 2, 3, 4);
  expect(requests()).toEqual([[1], [2, 3]]);
  await turn();
  expect(requests()).toEqual([[1], [2, 3], [4]]);
});

it('gathers the requests of several turns while all lanes are in use', async () => {
  const { add, sent, requests, answers } = batchOf({ lanes: 1, longestHold: 60_000 });
  add(1);
  add(2);
  await turn();
  add(3);
  expect(requests()).toEqual([[1]]);
  sent[0]?.answer();
  await turn();
  expect(requests()).toEqual([[1], [2, 3]]);
  sent[1]?.answer();
  expect(answers).toEqual([10, 20, 30]);
});

it('sends without an answer after a moment: the one before may wait for long', async () => {
  const { add, requests } = batchOf({ lanes: 1, longestHold: 1 });
  add(1);
  add(2);
  await eventually(() => requests().length === 2);
  expect(requests()).toEqual([[1], [2]]);
});

it('fails all requests of a batch that failed, and goes on', async () => {
  const { add, sent, answers } = batchOf({ lanes: 1, longestHold: 60_000 });
  add(1);
  add(2, 3);
  sent[0]?.fail(new Error('no'));
  await turn();
  sent[1]?.answer();
  expect(answers).toEqual(['Error: no', 20, 30]);
});
