/** Names stand left and figures stand right. */
export function aligned(column) {
  return column === 0 ? 'left' : 'right';
}
