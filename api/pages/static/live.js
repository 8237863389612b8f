// Keeps a list up to date: asks for the page again while it is visible, and replaces what differs. Nothing is replaced
// under the keyboard or under selected text.

for (const list of document.querySelectorAll("[data-every]")) {
  const busy = () => document.hidden || (list.contains(document.activeElement) && document.activeElement !== list) || list.contains(getSelection().anchorNode) && !getSelection().isCollapsed;
  let shown = list.innerHTML;
  const again = async () => {
    try {
      if (busy()) return;
      const answer = await fetch(list.dataset.from ?? location.href, { headers: { accept: "text/html" } });
      if (!answer.ok) return;
      const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(list.id);
      if (!found || found.innerHTML === shown || busy()) return;
      shown = found.innerHTML;
      list.replaceChildren(...[...found.childNodes].map((node) => document.importNode(node, true)));
      list.dispatchEvent(new CustomEvent("renewed", { bubbles: true }));
    } catch {
      // the server is away; the next turn asks again
    } finally {
      setTimeout(again, 1000 * list.dataset.every);
    }
  };
  setTimeout(again, 1000 * list.dataset.every);
}
