/** The longest delay in ms that a timer of Node.js takes, about 24.8 days; a longer one would fire at once. */
export const LONGEST_DELAY = 2 ** 31 - 1;
