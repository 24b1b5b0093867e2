import { HOST_METADATA, PATH_METADATA, VERSION_METADATA } from '@nestjs/common/constants.js';

type Place = object & { readonly name: string };

/**
 * Where the requests of a controller come from beside their path: its host, and the version of controller and handler.
 * `undefined` for a handler that its path alone determines.
 */
export function hostAndVersion(controller: Place, handler: Place): string | undefined {
  const parts = [metadata(HOST_METADATA, controller), version(handler) ?? version(controller)];
  return parts.some((part) => part !== undefined) ? parts.map((part) => part ?? '').join('|') : undefined;
}

/** The place of a controller or of one of its handlers: two controllers may have classes of one name. */
export function placeOf(controller: Place, handler?: Place): string {
  const path = metadata(PATH_METADATA, controller);
  const parts = [path, hostAndVersion(controller, handler ?? controller)].filter((part) => part !== undefined);
  return [handler ? `${controller.name}.${handler.name}` : controller.name, ...parts].join('@');
}

function version(target: Place): string | undefined {
  return metadata(VERSION_METADATA, target);
}

/** Text, a list of texts, a pattern or a symbol. */
function metadata(key: string, target: Place): string | undefined {
  const value: unknown = Reflect.getMetadata(key, target);
  if (value === undefined) return undefined;
  return (Array.isArray(value) ? value : [value]).map(String).join(',');
}
