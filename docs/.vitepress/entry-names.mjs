// Names the modules of the reference as users import them.
import { Converter } from 'typedoc';
import { ENTRIES } from '../../tools/entries.mjs';

const NAMES = new Map(
  Object.entries(ENTRIES).map(([entry, path]) => [
    path.replace(/\/index$/, ''),
    entry === 'index' ? 'nest-redis-lock' : `nest-redis-lock/${entry}`,
  ]),
);

/** @param {import('typedoc').Application} app */
export function load(app) {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const module of project.children ?? []) module.name = NAMES.get(module.name) ?? module.name;
  });
}
