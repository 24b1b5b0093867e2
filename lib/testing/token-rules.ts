import assert from 'node:assert/strict';
import type { TokenRange } from '../contracts/lock-backend.js';
import { granted } from './grant-rules.js';
import { rule, ruleUnder, type Rule } from './stage.js';

const lastOf = ({ first, count }: TokenRange) => first + count - 1;

/** Fencing tokens: they rise with every grant, and no token is issued twice. */
export const TOKEN_RULES: readonly Rule[] = [
  rule('issues rising tokens to processes that take turns', async (stage) => {
    const clients = [await stage.client(), await stage.client()];
    let last = 0;
    for (let turn = 0; turn < 40; turn++) {
      const client = clients[turn % 2]!;
      const ticket = client.ticket();
      const answer = await client.acquire(stage.name, ticket);
      assert(answer.status === 'granted');
      assert(answer.tokens.first > last, `token ${answer.tokens.first} after ${last}`);
      last = lastOf(answer.tokens);
      await client.release(stage.name, ticket);
    }
  }),

  rule('mints ranges above all earlier ones, for the owner only', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    const answer = await one.acquire(stage.name, owner);
    assert(answer.status === 'granted');
    let last = lastOf(answer.tokens);
    for (let times = 0; times < 5; times++) {
      const tokens = await one.mint(stage.name, owner);
      assert(tokens && tokens.count >= 1);
      assert(tokens.first > last, `token ${tokens.first} after ${last}`);
      last = lastOf(tokens);
    }
    assert.equal(await two.mint(stage.name, two.ticket()), null);
    await one.release(stage.name, owner);
    assert.equal(await one.mint(stage.name, owner), null);
    const next = await two.acquire(stage.name, two.ticket());
    assert(next.status === 'granted');
    assert(next.tokens.first > last, `token ${next.tokens.first} after ${last}`);
  }),

  rule('mints no token below the requested least one, then or later', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    const answer = await one.acquire(stage.name, owner);
    assert(answer.status === 'granted');
    const least = answer.tokens.first + 1_000_000_000;
    const tokens = await one.mint(stage.name, owner, least);
    assert(tokens && tokens.first >= least, `token ${tokens?.first} below ${least}`);
    await one.release(stage.name, owner);
    const next = await two.acquire(stage.name, two.ticket());
    assert(next.status === 'granted');
    assert(next.tokens.first > lastOf(tokens), `token ${next.tokens.first} after ${lastOf(tokens)}`);
  }),

  rule('grants no token below the requested least one', async (stage) => {
    const client = await stage.client();
    const [first, second] = [client.ticket(), client.ticket()];
    const answer = await client.acquire(stage.name, first);
    assert(answer.status === 'granted');
    await client.release(stage.name, first);
    const least = answer.tokens.first + 1_000_000_000;
    const next = await client.acquire(stage.name, second, client.long, least);
    assert(next.status === 'granted');
    assert(next.tokens.first >= least, `token ${next.tokens.first} below ${least}`);
    const tokens = await client.mint(stage.name, second);
    assert(tokens && tokens.first > lastOf(next.tokens), `token ${tokens?.first} after ${lastOf(next.tokens)}`);
  }),

  ruleUnder(
    ['loseData'],
    'grants and mints no token below the requested least one, after a loss of data',
    async (stage, faults) => {
      const client = await stage.client();
      let last = 0;
      for (let turn = 0; turn < 20; turn++) {
        const answer = await client.acquire(stage.name, client.ticket());
        assert(answer.status === 'granted');
        last = lastOf(answer.tokens);
        await client.release(stage.name, `${client.process}:${turn + 1}`);
      }
      await faults.loseData();
      const ticket = client.ticket();
      let found: TokenRange | undefined;
      await stage.until('the name is granted again', async () => {
        const answer = await client.acquire(stage.name, ticket, client.long, last + 1).catch(() => undefined);
        if (answer?.status === 'granted') found = answer.tokens;
        return found !== undefined;
      });
      assert(found && found.first > last, `token ${found?.first} after ${last}`);
      const tokens = await client.mint(stage.name, ticket, found.first + 1_000_000);
      assert(tokens && tokens.first >= found.first + 1_000_000, `token ${tokens?.first} after ${found.first}`);
    },
  ),

  rule('does not shorten the lease when it mints', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    await granted(client, stage.name, ticket);
    await client.mint(stage.name, ticket);
    const renewed = await client.renew(stage.name, ticket, 1);
    assert(renewed.status === 'renewed' && renewed.remaining > 500, JSON.stringify(renewed));
  }),

  rule('gives several names one token, above those of each', async (stage) => {
    const client = await stage.client();
    if (!client.backend.acquireSeveral) return;
    const [a, b] = [`{${stage.name}}:a`, `{${stage.name}}:b`];
    const single = client.ticket();
    const of_b = await client.acquire(b, single);
    assert(of_b.status === 'granted');
    const high = await client.mint(b, single, of_b.tokens.first + 1_000_000);
    assert(high);
    await client.release(b, single);
    const both = client.ticket();
    const answer = await client.acquire([a, b], both);
    assert(answer.status === 'granted');
    assert(answer.tokens.first > lastOf(high));
    await Promise.all([a, b].map((name) => client.release(name, both)));
    for (const name of [a, b]) {
      const next = await client.acquire(name, client.ticket());
      assert(next.status === 'granted' && next.tokens.first > lastOf(answer.tokens), name);
    }
  }),

  rule(
    'shows in inspect the owner, the lease that is left, and the newest token that it issued or reserved',
    async (stage) => {
      const client = await stage.client();
      const ticket = client.ticket();
      const answer = await client.acquire(stage.name, ticket);
      assert(answer.status === 'granted');
      const locks = await stage.locks();
      const info = await locks.inspect(stage.name);
      assert.equal(info?.owner, ticket);
      const longest = client.backend.traits.lease === 'session' ? Infinity : client.long;
      assert(info.ttl > 0 && info.ttl <= longest, `${info.ttl} of ${longest} ms`);
      assert(info.fencingToken !== null && info.fencingToken >= answer.tokens.first, `${info.fencingToken}`);
    },
  ),
];
