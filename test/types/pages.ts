import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import remarkGfm from 'remark-gfm';
import remarkParse from 'remark-parse';
import { unified } from 'unified';
import { visit } from 'unist-util-visit';

export const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

/** Generated, or in Chinese. */
const NO_ENGLISH = /^(api|api-report|reference|zh|\.vitepress)\//;

/** The pages in English that people write, from the root of the repository. */
export function pages(): string[] {
  const files = readdirSync(join(REPOSITORY, 'docs'), { recursive: true, encoding: 'utf8' });
  const written = files.filter((file) => file.endsWith('.md') && !NO_ENGLISH.test(file)).map((file) => `docs/${file}`);
  const others = ['README.md', 'CONTRIBUTING.md', 'sample-app/README.md', 'test/pack/earlier/README.md'];
  return [...others, ...written.toSorted()];
}

/** Stands for code while the text is cut into sentences: a capital letter, which begins one. */
const CODE = '\u{1d402}';

interface Sentence {
  /** On which the paragraph or cell begins. */
  readonly line: number;
  readonly text: string;
  /** Of which code is one. */
  readonly words: string;
}

/** The sentences of a page. */
export function sentencesOf(page: string): Sentence[] {
  // Without what YAML says at the top, but with its lines.
  const source = readFileSync(join(REPOSITORY, page), 'utf8').replace(/^---\n[\s\S]*?\n---\n/, (yaml) =>
    '\n'.repeat(yaml.split('\n').length - 1),
  );
  const found: Sentence[] = [];
  const segmenter = new Intl.Segmenter('en', { granularity: 'sentence' });
  visit(unified().use(remarkParse).use(remarkGfm).parse(source), ['paragraph', 'heading', 'tableCell'], (block) => {
    let written = '';
    const codes: string[] = [];
    visit(block, (node) => {
      if (node.type === 'text') written += node.value.replaceAll(/\s+/g, ' ');
      if (node.type === 'inlineCode') codes.push(node.value);
      if (node.type === 'inlineCode') written += CODE;
      if (node.type === 'break') written += ' ';
    });
    for (const { segment } of segmenter.segment(written)) {
      const text = segment.trim().replaceAll(CODE, () => codes.shift() ?? '');
      found.push({ line: block.position?.start.line ?? 0, text, words: segment.trim().replaceAll(CODE, 'Code') });
    }
  });
  return found;
}
