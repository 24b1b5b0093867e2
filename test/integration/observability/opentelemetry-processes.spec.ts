import type { Attributes } from '@opentelemetry/api';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { server, startRedis } from '../../support/one-redis.js';
import { waiterReached } from '../../support/reached-waiter.js';

startRedis();

interface ShownSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parent: string;
  readonly attributes: Attributes;
  readonly events: { readonly name: string; readonly attributes: Attributes }[];
}

/** A shop in a process of its own. */
async function startShop() {
  const child = Child.start('traced-shop.mjs', [String(server.port)]);
  const url = `http://127.0.0.1:${await child.says<number>('port')}`;
  const ask = async (route: string, headers = {}) => {
    const [method, path] = route.split(' ') as [string, string];
    const answer = await fetch(`${url}${path}`, { method, headers });
    return answer.json() as Promise<ShownSpan[]>;
  };
  return { ask, says: (word: string) => child.says(word), [Symbol.asyncDispose]: () => child.kill() };
}

/** The header with which the caller of a shop names its trace and its span. */
function traceparent(digit: string) {
  return { traceparent: `00-${digit.repeat(32)}-${digit.repeat(16)}-01` };
}

const named = (spans: readonly ShownSpan[], name: string) => spans.find((span) => span.name === name) as ShownSpan;

it('spans of two processes nest in the trace of their request, and name each other by owner at the hand-over', async () => {
  await using first = await startShop();
  await using second = await startShop();
  const ships = first.ask('POST /ship?wait', traceparent('a'));
  await first.says('holds');
  const waits = second.ask('POST /ship', traceparent('b'));
  await second.says('waits');
  await waiterReached(server, 'order:7');
  await first.ask('POST /go');
  await Promise.all([ships, waits]);
  for (const [shop, digit] of [
    [first, 'a'],
    [second, 'b'],
  ] as const) {
    const spans = await eventually(async () => {
      const ended = await shop.ask('GET /spans');
      return ended.length === 4 ? ended : undefined;
    });
    const request = named(spans, 'POST /ship');
    expect(request.parent).toBe(digit.repeat(16));
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([digit.repeat(32)]));
    for (const name of ['acquire lock', 'hold lock', 'work']) {
      expect(named(spans, name).parent).toBe(request.spanId);
    }
  }
  const hold = named(await first.ask('GET /spans'), 'hold lock');
  const acquire = named(await second.ask('GET /spans'), 'acquire lock');
  expect(acquire.attributes).toMatchObject({
    'nest_redis_lock.keys': ['order:7'],
    'nest_redis_lock.handed_over': 'elsewhere',
    'nest_redis_lock.outcome': 'acquired',
  });
  const [contended] = acquire.events;
  expect(contended?.name).toBe('contended');
  expect(contended?.attributes['nest_redis_lock.owner']).toBe(hold.attributes['nest_redis_lock.owner']);
});
