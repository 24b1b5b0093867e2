/** The limit of a hot key: promises in one process that wait for each other, without Redis. */
export async function connect() {
  const tails = new Map();
  return (key, body) => {
    const result = (tails.get(key) ?? Promise.resolve()).then(body);
    tails.set(
      key,
      result.catch(() => {}),
    );
    return result;
  };
}
