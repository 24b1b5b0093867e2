import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
export const DOCS = join(ROOT, 'docs');
/** Parts of docs/ that are no pages. */
export const NO_PAGES = ['api/**', 'api-report/**', '.vitepress/**'];

interface Manifest {
  readonly version: string;
  readonly description: string;
  readonly repository?: string | { readonly url: string };
}
export const MANIFEST = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Manifest;

const { GITHUB_SERVER_URL = 'https://github.com', GITHUB_REPOSITORY, SITE_URL } = process.env;
/** The repository of the workflow, or that of package.json. Without either, the site has no links to it. */
export const REPOSITORY = GITHUB_REPOSITORY
  ? `${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}`
  : declared(MANIFEST.repository);
/** Where the site is going to be, with a slash at its end: social tags and the sitemap need whole addresses. */
export const SITE = SITE_URL?.replace(/\/*$/, '/');
export const BASE = SITE ? new URL(SITE).pathname : '/';

function declared(repository: Manifest['repository']): string | undefined {
  const url = typeof repository === 'string' ? repository : repository?.url;
  return url?.replace(/^git\+/, '').replace(/\.git$/, '');
}

/**
 * Where a link of a page leads on the site: pages stay relative links, and files that are no pages are read at GitHub.
 * `null` where the repository has no address.
 */
export function placeOf(link: string, page: string): string | null {
  if (/^([a-z]+:|#|\/)/i.test(link)) return link;
  const [path = '', ...hash] = link.split(/(?=#)/);
  const target = resolve(dirname(page), path);
  const inDocs = relative(DOCS, target);
  if (path.endsWith('.md') && !/^(\.\.|api-report)/.test(inDocs)) return toIndex(path) + hash.join('');
  if (path.endsWith('.png') && !inDocs.startsWith('..')) return link;
  if (!existsSync(target)) throw new Error(`${page} links to ${link}, which does not exist`);
  if (!REPOSITORY) return null;
  const kind = statSync(target).isDirectory() ? 'tree' : 'blob';
  return `${REPOSITORY}/${kind}/main/${relative(ROOT, target)}${hash.join('')}`;
}

/** GitHub shows the README of a folder, and a site its index. */
export function toIndex(path: string): string {
  return path.replace(/(^|\/)README\.md$/, '$1index.md');
}
