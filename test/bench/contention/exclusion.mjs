/**
 * When bodies ran in one process, under which key and with which fencing token, if any. The clock is the machine's, so
 * that processes can be compared.
 */
export class StayRecorder {
  #keys = [];
  #entered = [];
  #left = [];
  #tokens = [];

  record(key, entered, left, token) {
    this.#keys.push(key);
    this.#entered.push(entered);
    this.#left.push(left);
    this.#tokens.push(typeof token === 'number' ? token : Infinity);
  }

  recorded() {
    const [entered, left, tokens] = [this.#entered, this.#left, this.#tokens].map((each) => Float64Array.from(each));
    return { keys: this.#keys, entered, left, tokens };
  }
}

/**
 * How many bodies began, in whatever process, while another one ran under the same key, or with a fencing token that is
 * not above the one before.
 */
export function countViolations(recordings) {
  const staysOf = new Map();
  for (const { keys, entered, left, tokens } of recordings) {
    for (const [index, key] of keys.entries()) {
      if (!staysOf.has(key)) staysOf.set(key, []);
      staysOf.get(key).push({ entered: entered[index], left: left[index], token: tokens[index] });
    }
  }
  let violations = 0;
  for (const stays of staysOf.values()) {
    stays.sort((one, other) => one.entered - other.entered);
    const left = Float64Array.from(stays, (stay) => stay.left).toSorted();
    for (let index = 1; index < stays.length; index++) {
      const [before, stay] = [stays[index - 1], stays[index]];
      // The one that enters as number n + 1 was alone if n had left before.
      if (left[index - 1] > stay.entered) violations += 1;
      else if (stay.token < Infinity && stay.token <= before.token) violations += 1;
    }
  }
  return violations;
}
