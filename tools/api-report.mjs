// Writes the public types of each entry point to docs/api-report. With --check: fails where a report is out of date.
// Reads dist-lib, whose declarations have the names of lib: run `npm run build:lib` first.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Extractor, ExtractorConfig } from '@microsoft/api-extractor';
import { ENTRIES } from './entries.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const check = process.argv.includes('--check');

const temporary = join(ROOT, 'node_modules/.cache/api-report');
const complete = join(temporary, 'complete');
mkdirSync(complete, { recursive: true });
const reports = new Map(Object.keys(ENTRIES).map((name) => [name, completeReportOf(name)]));
const outdated = [...reports].filter(([name, report]) => !isUpToDate(`${name}.public.api.md`, publicPartOf(report)));
if (check && outdated.length > 0) {
  console.error('The public API differs from docs/api-report. Run `npm run api`, and commit the report.');
  process.exitCode = 1;
}

/** Of all that the declarations have, also what only private and internal members use. */
function completeReportOf(name) {
  const config = ExtractorConfig.prepare({
    configObjectFullPath: undefined,
    packageJsonFullPath: join(ROOT, 'package.json'),
    configObject: {
      projectFolder: ROOT,
      mainEntryPointFilePath: join(ROOT, `dist-lib/${ENTRIES[name]}.d.ts`),
      newlineKind: 'lf',
      compiler: { tsconfigFilePath: join(ROOT, 'tsconfig.build.json') },
      apiReport: {
        enabled: true,
        reportFileName: `${name}.api.md`,
        reportFolder: complete,
        reportTempFolder: temporary,
        // Without @internal members, whose types are the library's own.
        reportVariants: ['public'],
        includeForgottenExports: true,
      },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      tsdocMetadata: { enabled: false },
    },
  });
  const quiet = (message) => {
    if (message.messageId.startsWith('console-api-report')) message.logLevel = 'none';
  };
  Extractor.invoke(config, { localBuild: true, showVerboseMessages: false, messageCallback: quiet });
  return readFileSync(join(complete, `${name}.public.api.md`), 'utf8');
}

/**
 * What the entry point exports, and the types in it that no entry point exports by name. A change of these is one of
 * the public API, too: users reach them as `CacheOptions['l1']`.
 */
function publicPartOf(report) {
  const [head = '', ...declarations] = report.split(/\n\n(?=\/\/ [@(])/);
  const end = declarations.pop() ?? '';
  const kept = new Set(declarations.filter((text) => /^export /m.test(text)));
  const named = new Map(
    declarations.map((text) => [/^(?:[a-z]+ )*?(?:class|const|function|interface|type) (\w+)/m.exec(text)?.[1], text]),
  );
  for (const text of kept) {
    for (const [word] of text.replaceAll(/'[^']*'|\/\/.*/g, '').matchAll(/\w+/g)) {
      const declared = named.get(word);
      if (declared && !isExported(word)) kept.add(declared);
    }
  }
  const body = declarations.filter((text) => kept.has(text));
  const uses = (name) => body.some((text) => new RegExp(`\\b${name}\\b`).test(text));
  const imports = head.split('\n').filter((line) => {
    const [, name] = /^import .*?(\w+) (?:\} )?from /.exec(line) ?? [];
    return name === undefined || uses(name);
  });
  return [imports.join('\n'), ...body, end].join('\n\n');
}

function isExported(name) {
  const declared = new RegExp(`^export (?:[a-z]+ )*${name}\\b`, 'm');
  return [...reports.values()].some((report) => declared.test(report));
}

/** Writes the report if it is not, unless that is only to be checked. */
function isUpToDate(file, text) {
  const path = join(ROOT, 'docs/api-report', file);
  const upToDate = existsSync(path) && readFileSync(path, 'utf8') === text;
  if (!upToDate && !check) writeFileSync(path, text);
  return upToDate;
}
