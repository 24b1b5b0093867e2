import { fileURLToPath } from 'node:url';

/** Where the pictures of the README go: `SCREENSHOTS=1 npm run test:browser`. Without it, no file changes. */
export const IMAGES = process.env['SCREENSHOTS'] && fileURLToPath(new URL('../../docs/images/', import.meta.url));
