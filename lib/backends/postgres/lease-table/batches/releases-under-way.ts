interface UnderWay {
  count: number;
  repeated: boolean;
}

/**
 * The releases that have no answer yet. Statements travel on several connections, and a later release of the same
 * ticket may overtake an earlier one: that one then answers "gone" of a name that its ticket had owned.
 */
export class ReleasesUnderWay {
  private readonly byCall = new Map<string, UnderWay>();

  /** Call it when the release is asked for. */
  begun(call: string): void {
    const known = this.byCall.get(call);
    if (!known) this.byCall.set(call, { count: 1, repeated: false });
    else {
      known.count += 1;
      known.repeated = true;
    }
  }

  /** Call it when the release has ended. Answers whether another of the same ticket was under way meanwhile. */
  ended(call: string): boolean {
    const known = this.byCall.get(call);
    if (!known) return false;
    known.count -= 1;
    if (known.count === 0) this.byCall.delete(call);
    return known.repeated;
  }
}
