import { asBusy, asGranted, CLAIM, type QueuePeer, TTL } from '../../../support/queue-peer.js';
import {
  startQueueOnRedis,
  plain,
  name,
  peer,
  unreachable,
  foreign,
  owner,
  leaseLeft,
  queued,
  outlive,
  ownerAndWaiter,
} from '../../../support/queue-on-redis.js';

startQueueOnRedis();

/** A ticket that asks to read. */
const reading = (of: QueuePeer) => of.ticket().replace(/:(\d+)$/, ':0$1');

async function readersAndWriter() {
  const [one, two, writer] = [await peer(), await peer(), await peer()];
  const [first, second, waiting] = [reading(one), reading(two), writer.ticket()];
  asGranted(await one.enqueue(name, first));
  asGranted(await two.enqueue(name, second));
  asBusy(await writer.enqueue(name, waiting));
  return { one, first, two, second, writer, waiting };
}

describe('readers', () => {
  it('are the value of the lock, which lasts as long as the longest of them', async () => {
    const [one, two] = [await peer(), await peer()];
    const [first, second] = [reading(one), reading(two)];
    const { tokens } = asGranted(await one.enqueue(name, first, { ttl: 10_000 }));
    expect(asGranted(await two.enqueue(name, second)).tokens).toEqual(tokens);
    expect(await owner()).toMatch(new RegExp(`^readers ${tokens.first} ${first}=\\d+ ${second}=\\d+$`));
    expect(await leaseLeft()).toBeGreaterThan(20_000);
    expect(await plain.set(`lock:{${name}}`, 'foreign', 'PX', 1_000, 'NX')).toBeNull();
    await two.release(name, second);
    expect(await leaseLeft()).toBeLessThanOrEqual(10_000);
    await one.release(name, first);
    expect(await owner()).toBeNull();
  });

  it('are granted what is left when their request is sent twice', async () => {
    const one = await peer();
    const first = reading(one);
    asGranted(await one.enqueue(name, first, { ttl: 10_000 }));
    const again = asGranted(await one.enqueue(name, first));
    expect(again.remaining).toBeLessThanOrEqual(10_000);
    expect(await leaseLeft()).toBeLessThanOrEqual(10_000);
    await one.release(name, first);
    expect((await one.release(name, first)).status).toBe('gone');
    expect(await owner()).toBeNull();
  });

  it('that are late neither end nor renew the lock of a writer', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    await one.release(name, first);
    await two.release(name, second);
    await writer.granted(waiting);
    expect((await one.release(name, first)).status).toBe('taken');
    expect((await one.renew(name, first, TTL)).status).toBe('not-owner');
    expect(await one.mint(name, first)).toBeNull();
    await one.backend.downgrade?.({ names: [name], ticket: first, ttl: TTL });
    expect(await owner()).toBe(waiting);
  });

  it('of which the last leaves hand the lock to the writer that waits', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    await one.heardAll(plain);
    expect(one.wanted(first)).toHaveLength(1);
    await one.release(name, first);
    await writer.heardAll(plain);
    expect(writer.grants(waiting)).toEqual([]);
    await two.release(name, second);
    expect((await writer.granted(waiting)).claim).toBe(CLAIM);
  });

  it('that leave early tell the first writer when the lock ends now', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    await one.renew(name, first, 2 * TTL);
    await one.release(name, first);
    await writer.heardAll(plain);
    expect(writer.messages.filter(({ kind }) => kind === 'ends')).toMatchObject([{ ticket: waiting }]);
    await two.release(name, second);
  });

  it('wait behind a live writer, and come in together after it, before the next writer', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    const next = writer.ticket();
    asBusy(await writer.enqueue(name, next));
    const [third, fourth] = [reading(one), reading(two)];
    asBusy(await one.enqueue(name, third));
    asBusy(await two.enqueue(name, fourth));
    expect(await queued()).toEqual([waiting, third, fourth, next]);
    await one.release(name, first);
    await two.release(name, second);
    const { tokens } = await writer.granted(waiting);
    const fifth = reading(one);
    asBusy(await one.enqueue(name, fifth));
    await writer.release(name, waiting);
    for (const [of, ticket] of [
      [one, third],
      [two, fourth],
      [one, fifth],
    ] as const) {
      expect((await of.granted(ticket)).tokens.first).toBeGreaterThanOrEqual(tokens.first + tokens.count);
    }
    expect(await queued()).toEqual([next]);
    for (const [of, ticket] of [
      [one, third],
      [two, fourth],
      [one, fifth],
    ] as const)
      await of.release(name, ticket);
    await writer.granted(next);
  });

  it('come in past a writer that is dead, or has given up', async () => {
    const { one, first, writer, waiting } = await readersAndWriter();
    await outlive(waiting);
    asGranted(await one.enqueue(name, reading(one)));
    const [again, third] = [writer.ticket(), reading(one)];
    asBusy(await writer.enqueue(name, again));
    asBusy(await one.enqueue(name, third));
    await writer.release(name, again);
    await one.granted(third);
    expect((await one.renew(name, first, TTL)).status).toBe('renewed');
  });

  it('wait behind the first live writer, although a dead one is before it', async () => {
    const { one, writer, waiting } = await readersAndWriter();
    const dead = (await peer()).ticket();
    await plain.lpush(`lock:{${name}}:queue`, dead);
    await plain.hset(`lock:{${name}}:waiters`, dead, `${Date.now() + 2_000}:0:${CLAIM}:${name}`);
    const third = reading(one);
    asBusy(await one.enqueue(name, third));
    expect(await queued()).toEqual([dead, waiting, third]);
    await writer.beat(name, waiting);
    await one.heardAll(plain);
    expect(one.grants(third)).toEqual([]);
  });

  it('that no message reaches keep their place, and the others come in', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await a.release(name, a1);
    const mute = unreachable();
    const [third, fourth] = [reading(mute), reading(a)];
    asBusy(await mute.enqueue(name, third));
    asBusy(await a.enqueue(name, fourth));
    await b.release(name, b1);
    await a.granted(fourth);
    expect(await owner()).not.toContain(third);
    expect(await queued()).toEqual([third]);
    await a.release(name, fourth);
    expect(asGranted(await mute.beat(name, third)).remaining).toBeLessThanOrEqual(CLAIM);
  });

  it('learn by a heartbeat of a grant whose message was lost', async () => {
    const { a, b, b1 } = await ownerAndWaiter();
    const third = reading(a);
    asBusy(await a.enqueue(name, third));
    await a.release(name, (await queued())[1] as string);
    await b.release(name, b1);
    const { tokens } = await a.granted(third);
    expect(asGranted(await a.beat(name, third)).tokens).toEqual(tokens);
    await a.release(name, third);
    expect(await a.beat(name, third)).toEqual({ status: 'gone' });
  });

  it('find a name taken whose value only looks like readers', async () => {
    const one = await peer();
    foreign.push(`lock:{${name}}`);
    await plain.set(`lock:{${name}}`, 'readers of the news', 'PX', TTL);
    asBusy(await one.enqueue(name, reading(one)));
    expect((await one.backend.inspect({ name }))?.owner).toBe('readers of the news');
  });
});

describe('DOWNGRADE', () => {
  it('lets in the readers that wait before the next writer', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const [third, fourth] = [reading(a), reading(b)];
    asBusy(await a.enqueue(name, third));
    const { tokens } = asGranted(await b.enqueue(name, b1));
    await b.backend.downgrade?.({ names: [name], ticket: b1, ttl: TTL });
    expect((await a.granted(third)).tokens.first).toBeGreaterThanOrEqual(tokens.first + tokens.count);
    asBusy(await b.enqueue(name, fourth));
    expect(await queued()).toEqual([a1, fourth]);
    expect((await b.renew(name, b1, TTL)).status).toBe('renewed');
    await b.release(name, b1);
    await a.release(name, third);
    await a.granted(a1);
  });
});
