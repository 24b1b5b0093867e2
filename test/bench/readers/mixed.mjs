/** How many bodies began, in whatever process, while one that writes ran, or began to write while another one ran. */
export function countMixed(stays) {
  let violations = 0;
  let lastLeft = 0;
  let lastWriteLeft = 0;
  for (const { writes, entered, left } of stays.toSorted((one, other) => one.entered - other.entered)) {
    if ((writes ? lastLeft : lastWriteLeft) > entered) violations += 1;
    lastLeft = Math.max(lastLeft, left);
    if (writes) lastWriteLeft = Math.max(lastWriteLeft, left);
  }
  return violations;
}
