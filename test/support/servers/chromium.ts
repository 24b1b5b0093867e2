import { chromium, type Browser } from 'playwright-core';
import { findProgram, requireServer } from '../../../sample-app/servers/programs.js';

/** Opens Chromium or Chrome of this machine, without a window. `CHROMIUM` names another program. */
export function openBrowser(): Promise<Browser> {
  const executablePath = requireServer({
    name: 'Chromium',
    kind: 'browser',
    packages: ['chromium'],
    find: findBrowser,
    remedy: 'Install one (apt-get install chromium, as root), or set CHROMIUM to its program',
  });
  // Its sandbox does not work for root, and /dev/shm is small in containers.
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });
}

function findBrowser(): string | undefined {
  const named = process.env['CHROMIUM'];
  if (named) return findProgram(named);
  return findProgram('chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome');
}
