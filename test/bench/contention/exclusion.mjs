/** When bodies ran in one process, and under which key. The clock is the machine's, so that processes can be compared. */
export class StayRecorder {
  #keys = [];
  #entered = [];
  #left = [];

  record(key, entered, left) {
    this.#keys.push(key);
    this.#entered.push(entered);
    this.#left.push(left);
  }

  recorded() {
    return { keys: this.#keys, entered: Float64Array.from(this.#entered), left: Float64Array.from(this.#left) };
  }
}

/** How many bodies began, in whatever process, while another one ran under the same key. */
export function countViolations(recordings) {
  const times = new Map();
  for (const { keys, entered, left } of recordings) {
    for (const [index, key] of keys.entries()) {
      if (!times.has(key)) times.set(key, { entered: [], left: [] });
      times.get(key).entered.push(entered[index]);
      times.get(key).left.push(left[index]);
    }
  }
  let violations = 0;
  for (const stays of times.values()) {
    const entered = Float64Array.from(stays.entered).toSorted();
    const left = Float64Array.from(stays.left).toSorted();
    // The one that enters as number n + 1 was alone if n had left before.
    for (let index = 1; index < entered.length; index++) if (left[index - 1] > entered[index]) violations += 1;
  }
  return violations;
}
