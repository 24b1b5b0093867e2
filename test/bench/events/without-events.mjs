// Loads the library as if it had no events: every check for listeners is replaced by `false`, before V8 compiles it.
import Module from 'node:module';
import { fileURLToPath } from 'node:url';

const LIBRARY = fileURLToPath(new URL('../../../dist/cjs/', import.meta.url));
const { _compile: compile } = Module.prototype;

Module.prototype._compile = function compileWithoutEvents(source, file, ...others) {
  const code = file.startsWith(LIBRARY) ? source.replaceAll(/[\w.]+\.hasSubscribers\b/g, 'false') : source;
  return compile.call(this, code, file, ...others);
};
