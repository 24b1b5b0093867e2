/** How many values every peer keeps in memory at most: more than any scenario has. */
export const FIRST_LEVEL_SIZE = 50_000;
