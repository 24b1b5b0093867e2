// Writes the public types of each entry point to docs/api-report. With --check: fails where a report is out of date.
// Reads dist-lib, whose declarations have the names of lib: run `npm run build:lib` first.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Extractor, ExtractorConfig } from '@microsoft/api-extractor';
import { ENTRIES } from './entries.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const check = process.argv.includes('--check');

const temporary = join(ROOT, 'node_modules/.cache/api-report');
mkdirSync(temporary, { recursive: true });
const outdated = Object.keys(ENTRIES).filter((name) => reportOf(name).apiReportChanged);
if (check && outdated.length > 0) {
  console.error('The public API differs from docs/api-report. Run `npm run api`, and commit the report.');
  process.exitCode = 1;
}

function reportOf(name) {
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
        reportFolder: join(ROOT, 'docs/api-report'),
        reportTempFolder: temporary,
        // Without @internal members, whose types are the library's own.
        reportVariants: ['public'],
      },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      tsdocMetadata: { enabled: false },
    },
  });
  return Extractor.invoke(config, { localBuild: !check, showVerboseMessages: false });
}
