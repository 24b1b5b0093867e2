// Loads the library as if it had no events: every check for listeners is replaced by `false`, before V8 compiles it.
import Module from 'node:module';
import { fileURLToPath } from 'node:url';

const LIBRARY = fileURLToPath(new URL('../../../dist/cjs/', import.meta.url));
/** What Node.js compiles a CommonJS module with. */
const COMPILE = '_compile';
const compile = Reflect.get(Module.prototype, COMPILE);

Reflect.set(Module.prototype, COMPILE, function compileWithoutEvents(source, file, ...others) {
  const code = file.startsWith(LIBRARY) ? source.replaceAll(/[\w.]+\.hasSubscribers\b/g, 'false') : source;
  return Reflect.apply(compile, this, [code, file, ...others]);
});
