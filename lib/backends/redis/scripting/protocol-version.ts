/**
 * The version of what processes share at Redis: its keys and values, the scripts, and the messages. It grows when a
 * process of the version before would misread something. See docs/operations/rolling-updates.md.
 */
export const PROTOCOL_VERSION = 1;

/** The earliest version with whose processes this one excludes each other and shares values. */
export const EARLIEST_VERSION = 1;
