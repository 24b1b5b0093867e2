import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import type { MarkdownRenderer } from 'vitepress';
import { DOCS, REPOSITORY, ROOT } from './place.js';

type Tokens = ReturnType<MarkdownRenderer['parseInline']>;

interface Ledger {
  readonly promises: Readonly<Record<string, Readonly<Record<string, string>>>>;
}
const { promises } = JSON.parse(readFileSync(join(DOCS, 'promises.json'), 'utf8')) as Ledger;

/** Behind what a page promises, a link to the test that fails where it is broken. */
export function usePromises(md: MarkdownRenderer): void {
  if (!REPOSITORY) return;
  md.core.ruler.push('promises', (state) => {
    const { realPath } = state.env as { readonly realPath?: string };
    const tested = realPath && promises[relative(ROOT, realPath)];
    if (!tested) return;
    for (const token of state.tokens) {
      if (token.type !== 'inline' || !token.children) continue;
      const text = token.children.map(({ type, content }) => (type === 'softbreak' ? ' ' : content)).join('');
      for (const [part, test] of Object.entries(tested)) {
        if (text.includes(part)) token.children.push(...linkTo(test, state.Token));
      }
    }
  });
}

function linkTo(test: string, Token: new (type: string, tag: string, nesting: -1 | 0 | 1) => Tokens[number]): Tokens {
  const [, spec = '', name = ''] = /^([^:]+): (.+)$/.exec(test) ?? [];
  const [open, mark, close] = [
    new Token('link_open', 'a', 1),
    new Token('text', '', 0),
    new Token('link_close', 'a', -1),
  ];
  open.attrs = [
    ['href', `${REPOSITORY}/blob/main/${spec}`],
    ['class', 'tested no-icon'],
    ['title', `The test of this: ${name}`],
    ['aria-label', `The test of this: ${name}`],
  ];
  mark.content = '✓';
  return [open, mark, close];
}
