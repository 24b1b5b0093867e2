/** What connects a peer by its name: its adapter lies in the folder. */
export function connectorOf(peers, folder) {
  return async (name, settings) => {
    const { adapter, options } = peers[name];
    const { connect } = await import(new URL(`${adapter}.mjs`, folder).href);
    return connect({ ...settings, options });
  };
}
