import assert from 'node:assert/strict';
import { rule, type Rule } from '../case-list.js';
import { granted } from './grant-rules.js';

/** Endings that make a different name of each, whatever the store makes of case, blanks and separators. */
const ENDINGS = [
  '',
  'a',
  'A',
  'a ',
  ' a',
  'a\t',
  'a\u0000',
  'a\u0000b',
  'a/b',
  'a%2Fb',
  'a//b',
  '/',
  '..',
  '.',
  'á',
  'a\u0301',
  '😀',
  '😁',
  '{a}',
  '}',
  "a'b",
  'a"b',
  'a\\b',
  'a:b',
  'a*',
  'a?',
  'a_',
  'a\nb',
  'ß',
  'ss',
  'x'.repeat(1_000),
  `${'x'.repeat(999)}y`,
];

/** Which names are the same. */
export const NAME_RULES: readonly Rule[] = [
  rule('keeps names apart that differ in case, blanks, separators or beyond ASCII', async (stage) => {
    const [one, two] = [await stage.client(), await stage.client()];
    const held = ENDINGS.map((ending) => ({ name: `${stage.name}-${ending}`, ticket: one.ticket() }));
    for (const { name, ticket } of held) await granted(one, name, ticket);
    for (const { name, ticket } of held) {
      assert.equal(await two.ownerOf(name), ticket, JSON.stringify(name));
      assert.equal((await two.acquire(name, two.ticket())).status, 'busy', JSON.stringify(name));
    }
    for (const { name, ticket } of held) assert.equal((await one.release(name, ticket)).status, 'released', name);
    for (const { name } of held) assert.equal(await two.ownerOf(name), undefined, JSON.stringify(name));
  }),

  rule('keeps the names of different prefixes apart', async (stage) => {
    const clients = [await stage.client('shop'), await stage.client('shop:a'), await stage.client()];
    const names = [`a:${stage.name}`, stage.name, `shop:a:${stage.name}`];
    for (const [index, client] of clients.entries()) await granted(client, names[index]!, client.ticket());
    for (const client of clients) await granted(client, `${stage.name}:same`, client.ticket());
  }),
];
