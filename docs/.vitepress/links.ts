import type { MarkdownRenderer } from 'vitepress';
import { placeOf } from './place.js';

type Tokens = ReturnType<MarkdownRenderer['parseInline']>;

interface Page {
  readonly realPath: string;
  readonly relativePath: string;
}

/** The anchors of GitHub, so that a link to a heading works there and here. */
export function slugOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
}

/** Links that work on the site as they do at GitHub, and names of the API that link to the reference. */
export function useLinks(md: MarkdownRenderer, pages: ReadonlyMap<string, string>): void {
  md.core.ruler.push('links', (state) => {
    const page = state.env as Page;
    // VitePress also renders single titles.
    if (!page.realPath) return;
    const inReference = page.relativePath.startsWith('reference/');
    let inHeading = false;
    for (const token of state.tokens) {
      if (token.type === 'heading_open') inHeading = true;
      if (token.type === 'heading_close') inHeading = false;
      if (token.type !== 'inline' || !token.children) continue;
      const children = placed(token.children, page.realPath);
      token.children = inHeading || inReference ? children : referring(children, pages, state.Token);
    }
  });
}

function placed(tokens: Tokens, file: string): Tokens {
  let dropped = false;
  return tokens.filter((token) => {
    if (token.type === 'link_close' && dropped) return (dropped = false);
    if (token.type !== 'link_open') return true;
    const place = placeOf(decodeURI(token.attrGet('href') ?? ''), file);
    if (place === null) return !(dropped = true);
    token.attrSet('href', place);
    return true;
  });
}

/** `LockService`, `@Cached` and `locks.acquire()` in code, but not in a link, link to what they name. */
function referring(
  tokens: Tokens,
  pages: ReadonlyMap<string, string>,
  Token: new (type: string, tag: string, nesting: -1 | 0 | 1) => Tokens[number],
): Tokens {
  let inLink = false;
  return tokens.flatMap((token) => {
    if (token.type === 'link_open') inLink = true;
    if (token.type === 'link_close') inLink = false;
    if (token.type !== 'code_inline' || inLink) return [token];
    const page = pages.get(/^@?(\w+)(?:\(.*\))?$/.exec(token.content)?.[1] ?? '');
    if (!page) return [token];
    const open = new Token('link_open', 'a', 1);
    open.attrSet('href', page);
    return [open, token, new Token('link_close', 'a', -1)];
  });
}
