import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The licences of the packages to which these modules belong, as one text.
 * @param {readonly string[]} modules
 */
export function noticesOf(modules) {
  const folders = modules.flatMap((module) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(module) ?? []);
  return [...new Set(folders)]
    .toSorted()
    .map(noticeOf)
    .join(`\n${'-'.repeat(80)}\n\n`);
}

function noticeOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e(\.(md|txt))?$/i.test(entry));
  if (!file) throw new Error(`${name} has no licence file; this package contains it and must show its licence`);
  return `This package contains ${name} ${version} (${license}):\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
}
