// What the theme leaves without a name for screen readers, or out of reach of the keyboard.
const name = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, at) => nav.setAttribute("aria-label", `Example ${at + 1}`));
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach(block => block.setAttribute("tabindex", "0"));
};
name();
new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
