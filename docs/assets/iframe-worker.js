// The search of mkdocs-material runs in a worker, which browsers do not start from disk (file:). There, a hidden
// frame takes its place: a Worker with the events and methods that the search uses. Written after the interface of
// https://github.com/squidfunk/iframe-worker; the search recognizes it by the name IFrameWorker.
(() => {
  const importScripts = async (...urls) => {
    for (const url of urls) {
      await new Promise((loaded, failed) => {
        const script = document.createElement("script");
        Object.assign(script, { src: url, onload: loaded, onerror: failed });
        document.body.append(script);
      });
    }
  };

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.receive = (event) => {
        if (event.source !== this.frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      addEventListener("message", this.receive);
      const inner = this.frame.contentWindow.document;
      inner.open();
      inner.write(
        "<!doctype html><body><script>postMessage = (data) => parent.postMessage(data, '*');" +
          `importScripts = ${importScripts};</script><script src="${url}"></script></body>`,
      );
      inner.close();
      this.ready = new Promise((loaded) => { this.frame.contentWindow.onload = loaded; });
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    }

    terminate() {
      removeEventListener("message", this.receive);
      this.frame.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  if (location.protocol === "file:") window.Worker = IFrameWorker;
})();
