// Runs before anything is painted: the reader's colours and language, which Gradio's own script then follows.
(() => {
  const root = document.documentElement;
  const cookie = /(?:^|; )language=(en|zh)/.exec(document.cookie);
  const own = (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
  const language = cookie ? cookie[1] : own;
  const browser = { en: "en", zh: "zh-CN" }[language];
  root.lang = browser;
  Object.defineProperty(navigator, "language", { get: () => browser });
  Object.defineProperty(navigator, "languages", { get: () => [browser] });

  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try { return localStorage.getItem("factory-theme") || "system"; } catch { return "system"; }
  };
  const isDark = () => ({ light: false, dark: true })[stored()] ?? system.matches;
  const paint = () => {
    const dark = isDark();
    root.classList.toggle("dark", dark);
    root.style.colorScheme = dark ? "dark" : "light";
    document.body?.classList.toggle("dark", dark);
    dispatchEvent(new CustomEvent("themechange", { detail: { dark } }));
  };
  system.addEventListener("change", paint);
  // Gradio asks the system once when it starts, and paints the body after it.
  const asked = matchMedia.bind(window);
  window.matchMedia = (query) =>
    query === "(prefers-color-scheme: dark)"
      ? { matches: isDark(), media: query, addEventListener() {}, removeEventListener() {}, addListener() {}, removeListener() {} }
      : asked(query);
  paint();
  document.addEventListener("DOMContentLoaded", paint);

  // Widgets can be used before the script that follows them is here: it begins with what was set until then.
  const early = [];
  const note = (event) => early.push(event);
  addEventListener("input", note, true);

  Object.assign(window.factory, {
    changed: (id, value) => early.push({ id, value }),
    early() {
      removeEventListener("input", note, true);
      return early;
    },
    language,
    theme: stored,
    setTheme(theme) {
      try { localStorage.setItem("factory-theme", theme); } catch { /* private windows keep nothing */ }
      paint();
    },
    setLanguage(chosen) {
      document.cookie = `language=${chosen}; path=/; max-age=31536000; samesite=strict`;
      location.reload();
    },
  });
})();
