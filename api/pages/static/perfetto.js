// Hands a trace to Perfetto's page, which answers PONG to PING once it can take one. Nothing passes through a server.
const PERFETTO = "https://ui.perfetto.dev", PATIENCE = 20_000, PAUSE = 100;

export function openInPerfetto(text, title, say) {
  const opened = window.open(PERFETTO);
  if (!opened) { say("The browser kept Perfetto from opening; download the trace and open it there."); return; }
  say("Waiting for Perfetto ...");
  const stop = (state) => {
    clearInterval(asking);
    clearTimeout(end);
    removeEventListener("message", heard);
    say(state);
  };
  const heard = (event) => {
    if (event.source !== opened || event.origin !== PERFETTO || event.data !== "PONG") return;
    const { buffer } = new TextEncoder().encode(text);
    opened.postMessage({ perfetto: { buffer, title, fileName: "trace.json" } }, PERFETTO, [buffer]);
    stop("Perfetto has the trace.");
  };
  addEventListener("message", heard);
  const asking = setInterval(() => opened.postMessage("PING", PERFETTO), PAUSE);
  const end = setTimeout(() => stop("Perfetto did not answer; download the trace and open it there."), PATIENCE);
}
