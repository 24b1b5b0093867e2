/** Ids in a list, or streamed, such as from a database cursor. */
export type IdSource = Iterable<string> | AsyncIterable<string>;

/** Reads no further ahead than one chunk. */
export async function* inChunks(ids: IdSource, size: number): AsyncGenerator<string[], void, undefined> {
  let chunk: string[] = [];
  for await (const id of ids) {
    if (chunk.push(id) < size) continue;
    yield chunk;
    chunk = [];
  }
  if (chunk.length > 0) yield chunk;
}
