"""Look at the built site with headless Chromium: ``python tools/look_at_site.py [FOLDER]``.

The program opens pages of the site (by default ``build/site``) at three widths, light and dark, and fails if

* a page is wider than the window,
* axe-core has a serious or critical finding, such as text without contrast,
* the search misses one of `WORDS`.

It writes a picture of each page into ``build/pictures``. It needs Debian's ``chromium`` and
``pip install playwright axe-playwright-python``.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "build/pictures"

PAGES = (
    *("index", "tutorial", "from-c-and-fortran", "from-cuda-streams", "gallery/index", "see-your-program"),
    *("reference", "generated/api/constructs", "generated/clauses", "performance"),
)
WIDTHS = (360, 768, 1440)
THEMES = ("light", "dark")
WORDS = ("map", "depend", "omp_target_memcpy_rect", "acc wait", "cudaStreamWaitEvent")
DONE = "/ound|did not match/.test(document.querySelector('.search-summary')?.textContent ?? '')"
SERIOUS = {"serious", "critical"}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A handler that prints no line for each request."""

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def overflow(page: Page) -> list[str]:
    """Return the elements that make a page wider than the window."""
    found: list[str] = page.evaluate(
        """() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        return [...document.querySelectorAll("article *")]
            .filter(e => e.getBoundingClientRect().right > width + 1)
            .slice(0, 5).map(e => e.outerHTML.slice(0, 120));
    }"""
    )
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return found or (["the page"] if wide else [])


def findings(page: Page) -> list[str]:
    """Return the serious findings of axe-core, one text for each element."""
    response = Axe().run(page).response
    return [
        f"{finding['id']}: {node['html'][:120]} {node['any'][0]['message'][:160] if node['any'] else ''}"
        for finding in response["violations"]
        if finding["impact"] in SERIOUS
        for node in finding["nodes"][:3]
    ]


def look(page: Page, address: str, name: str, width: int, theme: str) -> list[str]:
    """Open a page at a width in a theme, write its picture, and return its problems."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}/{name}.html")
    page.evaluate("document.fonts.ready")
    page.screenshot(path=PICTURES / f"{name.replace('/', '-')}-{width}-{theme}.png")
    place = f"{name} at {width} px, {theme}"
    return [f"{place}: wider than the window: {text}" for text in overflow(page)] + [
        f"{place}: {text}" for text in findings(page)
    ]


def search(page: Page, address: str, word: str) -> list[str]:
    """Return the titles that the search of the site lists for a word."""
    page.goto(f"{address}/search.html?q={word.replace(' ', '+')}")
    page.wait_for_function(
        "/[Ff]ound|did not match/.test(document.querySelector('.search-summary')?.textContent ?? '')"
    )
    return [link.inner_text() for link in page.query_selector_all("ul.search > li > a")]


def main() -> int:
    """Look at all pages, print the problems, and return the exit status."""
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/site"
    PICTURES.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(Quiet, directory=str(site))
    problems: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme in THEMES:
            page = browser.new_context(color_scheme=theme).new_page()
            page.add_init_script(f"localStorage.setItem('theme', '{theme}')")
            for name in PAGES:
                for width in WIDTHS:
                    problems += look(page, address, name, width, theme)
        for word in WORDS:
            titles = search(page, address, word)
            print(f"search for {word!r}: {len(titles)} pages: {', '.join(titles[:5])}")
            if not titles:
                problems.append(f"the search finds nothing for {word!r}")
        browser.close()
        server.shutdown()
    print("\n".join(problems) or f"{len(PAGES)} pages, {len(WIDTHS)} widths, {len(THEMES)} themes: no problem")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
