/** The packages of a benchmark's peers, in exact versions, which are installed outside of the repository. */
export declare class PeerPackages {
  constructor(file: string | URL);
  readonly defaultDirectory: string;
  install(
    peers: readonly { readonly packages: readonly string[] }[],
    folder: string,
    signal: AbortSignal,
  ): Promise<{ directory: string; versionOf(name: string, within: string): string | undefined }>;
}
