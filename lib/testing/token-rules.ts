import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TokenRange } from '../contracts/lock-backend.js';
import { assertAbove, assertAtLeast, granted, lastOf, shown } from './grant-rules.js';
import { rule, ruleOf, ruleUnder, type Rule } from './stage.js';

/** Fencing tokens: they rise with every grant, and no token is issued twice. */
export const TOKEN_RULES: readonly Rule[] = [
  rule('issues rising tokens to processes that take turns', async (stage) => {
    const clients = [await stage.client(), await stage.client()];
    let last = 0;
    for (let turn = 0; turn < 40; turn++) {
      const client = clients[turn % 2]!;
      const ticket = client.ticket();
      const { tokens } = await granted(client, stage.name, ticket);
      assertAbove(tokens.first, last);
      last = lastOf(tokens);
      await client.release(stage.name, ticket);
    }
  }),

  rule('grants rising tokens to tickets that ask at the same time', async (stage) => {
    const clients = [await stage.client(), await stage.client()];
    let last = 0;
    const takeTurns = clients.flatMap((client) =>
      [1, 2].map(async () => {
        for (let turns = 0; turns < 10;) {
          const ticket = client.ticket();
          const answer = await client.acquire(stage.name, ticket);
          if (answer.status === 'granted') {
            assertAbove(answer.tokens.first, last);
            last = lastOf(answer.tokens);
            await client.release(stage.name, ticket);
            turns += 1;
          } else await sleep(1);
        }
      }),
    );
    await Promise.all(takeTurns);
  }),

  rule('mints ranges above all earlier ones, for the owner only', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    let last = lastOf((await granted(one, stage.name, owner)).tokens);
    for (let times = 0; times < 5; times++) {
      const tokens = await one.mint(stage.name, owner);
      assert(tokens && tokens.count >= 1, `further tokens are due to the owner, and the answer is ${shown(tokens)}`);
      assertAbove(tokens.first, last, 'each range is above all earlier ones');
      last = lastOf(tokens);
    }
    assert.equal(await two.mint(stage.name, two.ticket()), null);
    await one.release(stage.name, owner);
    assert.equal(await one.mint(stage.name, owner), null);
    const next = await granted(two, stage.name, two.ticket());
    assertAbove(next.tokens.first, last, 'a grant has tokens above those that were minted');
  }),

  rule('mints no token below the requested least one, then or later', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const owner = one.ticket();
    const answer = await granted(one, stage.name, owner);
    const least = answer.tokens.first + 1_000_000_000;
    const tokens = await one.mint(stage.name, owner, least);
    assertAtLeast(tokens, least);
    await one.release(stage.name, owner);
    const next = await granted(two, stage.name, two.ticket());
    assertAbove(next.tokens.first, lastOf(tokens), 'a grant has tokens above those that were minted');
  }),

  rule('grants no token below the requested least one', async (stage) => {
    const client = await stage.client();
    const [first, second] = [client.ticket(), client.ticket()];
    const answer = await granted(client, stage.name, first);
    await client.release(stage.name, first);
    const least = answer.tokens.first + 1_000_000_000;
    const next = await granted(client, stage.name, second, client.long, least);
    assertAtLeast(next.tokens, least);
    const tokens = await client.mint(stage.name, second);
    assertAbove(tokens?.first, lastOf(next.tokens), 'each range is above all earlier ones');
  }),

  ruleUnder(
    ['loseData'],
    'grants and mints no token below the requested least one, after a loss of data',
    async (stage, faults) => {
      const client = await stage.client();
      let last = 0;
      for (let turn = 0; turn < 20; turn++) {
        const ticket = client.ticket();
        last = lastOf((await granted(client, stage.name, ticket)).tokens);
        await client.release(stage.name, ticket);
      }
      await faults.loseData();
      const ticket = client.ticket();
      let found: TokenRange | undefined;
      await stage.until('the name is granted again', async () => {
        const answer = await client.acquire(stage.name, ticket, client.long, last + 1).catch(() => undefined);
        if (answer?.status === 'granted') found = answer.tokens;
        return found !== undefined;
      });
      assertAtLeast(found, last + 1);
      const least = found.first + 1_000_000;
      const tokens = await client.mint(stage.name, ticket, least);
      assertAtLeast(tokens, least);
    },
  ),

  rule('does not shorten the lease when it mints', async (stage) => {
    const client = await stage.client();
    const ticket = client.ticket();
    await granted(client, stage.name, ticket);
    await client.mint(stage.name, ticket);
    const renewed = await client.renew(stage.name, ticket, 1);
    const left = renewed.status === 'renewed' ? renewed.remaining : 0;
    assert(left > 500, `the lease was ${client.long} ms before the ticket minted; the next renewal: ${shown(renewed)}`);
  }),

  ruleOf('acquireSeveral', 'gives several names one token, above those of each', async (stage) => {
    const client = await stage.client();
    const [a, b] = [`{${stage.name}}:a`, `{${stage.name}}:b`];
    const single = client.ticket();
    const { tokens } = await granted(client, b, single);
    const high = await client.mint(b, single, tokens.first + 1_000_000);
    assertAtLeast(high, tokens.first + 1_000_000);
    await client.release(b, single);
    const both = client.ticket();
    const answer = await granted(client, [a, b], both);
    assertAbove(answer.tokens.first, lastOf(high), 'the token of several names is above those of each');
    await Promise.all([a, b].map((name) => client.release(name, both)));
    for (const name of [a, b]) {
      const next = await granted(client, name, client.ticket());
      assertAbove(next.tokens.first, lastOf(answer.tokens), `"${name}" had the token of several names before`);
    }
  }),

  rule(
    'shows in inspect the owner, the lease that is left, and the newest token that it issued or reserved',
    async (stage) => {
      const client = await stage.client();
      const ticket = client.ticket();
      const { tokens } = await granted(client, stage.name, ticket);
      const locks = await stage.locks();
      const info = await locks.inspect(stage.name);
      assert.equal(info?.owner, ticket);
      const longest = client.backend.traits.lease === 'session' ? Infinity : client.long;
      assert(info.ttl > 0 && info.ttl <= longest, `${info.ttl} of ${longest} ms`);
      const { fencingToken } = info;
      assert(fencingToken !== null && fencingToken >= tokens.first, `token ${fencingToken} after ${tokens.first}`);
    },
  ),
];
