// Writes the public types of each entry point to docs/api-report. With --check: fails where a report is out of date.
// Reads dist: run `npm run build:lib` first.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Extractor, ExtractorConfig } from '@microsoft/api-extractor';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const ENTRIES = {
  index: 'dist/index.d.ts',
  testing: 'dist/testing/index.d.ts',
  memory: 'dist/backends/memory/index.d.ts',
  redlock: 'dist/backends/redlock/index.d.ts',
  mysql: 'dist/backends/mysql/index.d.ts',
  etcd: 'dist/backends/etcd/index.d.ts',
  postgres: 'dist/backends/postgres/index.d.ts',
  zookeeper: 'dist/backends/zookeeper/index.d.ts',
  opentelemetry: 'dist/observability/opentelemetry/index.d.ts',
  admin: 'dist/admin/index.d.ts',
  terminus: 'dist/observability/terminus/index.d.ts',
  prometheus: 'dist/observability/prometheus/index.d.ts',
};
const check = process.argv.includes('--check');

const temporary = join(ROOT, 'node_modules/.cache/api-report');
mkdirSync(temporary, { recursive: true });
const outdated = Object.entries(ENTRIES).filter(([name, entry]) => reportOf(name, entry).apiReportChanged);
if (check && outdated.length > 0) {
  console.error('The public API differs from docs/api-report. Run `npm run api`, and commit the report.');
  process.exitCode = 1;
}

function reportOf(name, entry) {
  const config = ExtractorConfig.prepare({
    configObjectFullPath: undefined,
    packageJsonFullPath: join(ROOT, 'package.json'),
    configObject: {
      projectFolder: ROOT,
      mainEntryPointFilePath: join(ROOT, entry),
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
