/* Search without a server: a browser starts no Worker for a page that was opened from the disk, so
   the theme's search worker runs in a hidden frame instead. Of the site alone; nothing is fetched
   from elsewhere. The theme looks for the name IFrameWorker. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentDocument;
      const scripts = (...urls) => urls.reduce((before, each) => before.then(() => new Promise((done, failed) => {
        const script = inside.createElement("script");
        Object.assign(script, { src: each, onload: done, onerror: failed });
        inside.body.append(script);
      })), Promise.resolve());
      const self = this.frame.contentWindow;
      self.importScripts = scripts;
      self.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside = self;
      this.ready = scripts(url);
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
  window.Worker = window.IFrameWorker;
}
