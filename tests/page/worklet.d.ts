// What there is in the thread of the sound, beside the names of a page.
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare const sampleRate: number;
declare const currentTime: number;
declare function registerProcessor(name: string, kind: new (options: any) => AudioWorkletProcessor): void;
