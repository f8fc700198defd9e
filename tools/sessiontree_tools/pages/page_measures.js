// What a page is at the present viewport. It runs apart from the page's scripts; lists and texts are bounded.
(limits) => {
  const all = document.querySelectorAll("*");
  const some = Array.from({ length: Math.min(all.length, limits.elements) }, (_, at) => all[at]);
  const root = document.documentElement;
  const cut = (text, length = 160) => (text ?? "").replace(/\s+/g, " ").trim().slice(0, length);

  const place = (element) => {
    const parts = [];
    for (let each = element; each && each !== root && parts.length < 4; each = each.parentElement) {
      const id = each.getAttribute("id");  // not each.id: a field of a form may be called id
      if (id) {
        parts.unshift(`#${cut(id, 40)}`);
        break;
      }
      const sort = each.classList.length ? `.${cut(each.classList[0], 40)}` : "";
      parts.unshift(each.localName.slice(0, 40) + sort);
    }
    return parts.join(" > ") || "html";
  };
  const first = (list, take = limits.listed) => list.slice(0, take);

  const width = root.clientWidth;
  const isShown = (element, box) => box.width > 0 && box.height > 0
    && getComputedStyle(element).visibility !== "hidden";
  const boxes = some.map((element) => [element, element.getBoundingClientRect()]);
  const clips = (element) => {
    for (let each = element.parentElement; each && each !== root; each = each.parentElement) {
      if (each !== document.body && getComputedStyle(each).overflowX !== "visible") return true;
    }
    return false;
  };
  const wide = boxes.filter(([element, box]) => box.right > width + 1 && isShown(element, box));

  const usable = "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button]";
  const isInText = (element) => element.localName === "a" && getComputedStyle(element).display === "inline"
    && cut(element.parentElement?.textContent, 400) !== cut(element.textContent, 400);
  const targets = boxes.filter(([element, box]) => element.matches(usable) && isShown(element, box)
    && box.right > 0 && !isInText(element));
  const small = targets.filter(([, box]) => box.width < limits.target || box.height < limits.target);

  let chars = 0;
  let smallChars = 0;
  const smallText = [];
  for (const [element, box] of boxes) {
    const own = Array.from(element.childNodes).filter((node) => node.nodeType === 3)
      .reduce((sum, node) => sum + node.data.trim().length, 0);
    if (!own || !isShown(element, box) || ["script", "style", "noscript"].includes(element.localName)) continue;
    chars += own;
    if (parseFloat(getComputedStyle(element).fontSize) < limits.font) {
      smallChars += own;
      smallText.push(place(element));
    }
  }

  const meta = (name) => document.querySelector(`meta[name="${name}" i]`)?.content ?? "";
  const images = Array.from(document.images);
  const isLarge = (image) => image.naturalWidth > 2 * devicePixelRatio * image.clientWidth
    && image.naturalWidth > 400 && image.clientWidth > 0 && !/\.svg($|\?)/i.test(image.currentSrc);
  const hasSize = (image) => (image.hasAttribute("width") && image.hasAttribute("height"))
    || getComputedStyle(image).aspectRatio.includes("/");

  const referring = { a: "href", area: "href", img: "src", script: "src", iframe: "src", source: "src",
    audio: "src", video: "src", link: "href" };
  const loaded = /(^|\s)(stylesheet|icon|apple-touch-icon|manifest|preload|modulepreload)(\s|$)/i;
  const references = some.filter((element) => element.hasAttribute(referring[element.localName] ?? " ")
    && (element.localName !== "link" || loaded.test(element.rel)));

  return {
    elements: all.length,
    layout: {
      width,
      scroll: root.scrollWidth,
      wide: first(wide.filter(([element]) => !clips(element)).map(([element]) => place(element)), 5),
    },
    viewport: meta("viewport").slice(0, 300),
    targets: { count: targets.length, small: first(small.map(([element, box]) => ({
      place: place(element), width: Math.round(box.width), height: Math.round(box.height) }))),
    small_count: small.length },
    text: { chars, small: smallChars, places: first([...new Set(smallText)], 5) },
    images: {
      count: images.length,
      unsized: first(images.filter((each) => !hasSize(each)).map(place)),
      large: first(images.filter(isLarge).map((each) => `${place(each)}: ${each.naturalWidth} px for ${each.clientWidth}`)),
      without_alt: first(images.filter((each) => !each.hasAttribute("alt")).map(place)),
    },
    head: {
      title: cut(document.title, 300),
      description: cut(meta("description"), 500),
      language: cut(root.lang, 40),
      canonical: (document.querySelector("link[rel=canonical i]")?.href ?? "").slice(0, 500),
      robots: cut(meta("robots"), 100),
      open_graph: first(Array.from(document.querySelectorAll("meta[property^='og:']"))
        .filter((each) => cut(each.content)).map((each) => cut(each.getAttribute("property"), 40))),
    },
    headings: first(Array.from(document.querySelectorAll("h1, h2, h3, h4, h5, h6")).map((each) => (
      { level: Number(each.localName[1]), text: cut(each.textContent, 80) }))),
    ids: first(Array.from(document.querySelectorAll("[id], a[name]"))
      .map((each) => (each.getAttribute("id") || each.getAttribute("name") || "").slice(0, 300)), 2000),
    references: first(references.map((each) => ({
      element: each.localName, url: each.getAttribute(referring[each.localName]).trim().slice(0, 300) })), 400),
  };
}
