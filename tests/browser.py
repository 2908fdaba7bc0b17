"""A headless Chromium for tests, with its console and its requests written down.

    with chromium(width=390, height=844, mobile=True, dark=True) as browser:
        browser.open(url)
        assert browser.console() == []

Without a Chromium the tests are skipped by name; with DPTEACH_REQUIRE_BROWSER=1 they fail instead.
"""

import functools
import http.server
import json
import os
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from chromium import find, missing
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

__all__ = ["Browser", "chromium", "served"]

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    # Nothing of the browser's own goes to the network, and nothing else gets there either.
    "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync", "--disable-default-apps",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class Browser:
    """A running Chromium: `driver` is Selenium's own object, the methods are shorthand."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, url):
        """Load a page; what the console and the request log held before is dropped."""
        self.console()
        self.requests()
        self.driver.get(url)

    def run(self, script, *arguments):
        """Run JavaScript in the page; returns what its `return` gives."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script, what, seconds=60):
        """Wait until a JavaScript expression is true, else fail naming `what`."""
        end = time.monotonic() + seconds
        while not self.run(f"return !!({script})"):
            if time.monotonic() > end:
                pytest.fail(f"{what}: not after {seconds} s on {self.driver.current_url}")
            time.sleep(0.02)

    def scheme(self, colours):
        """Ask pages for 'light' or 'dark' colours, also the page that's open; nothing moves on its
        own."""
        wanted = {"prefers-color-scheme": colours, "prefers-reduced-motion": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": name, "value": value} for name, value in wanted.items()]})
        self.frames()

    def frames(self):
        """Wait until the page has drawn, and so told its scripts, what was changed."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => "
            "setTimeout(done)))")

    def resize(self, width, height, mobile=False):
        """Make the window this large (CSS pixels), as on a phone with touch or not, also for the
        page that's open."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1,
                   "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": mobile})
        self.frames()

    def console(self):
        """What the console said since the last call: 'LEVEL message' for each entry."""
        return [f"{entry['level']} {entry['message']}" for entry in self.driver.get_log("browser")]

    def requests(self):
        """The address of every request since the last call."""
        events = [json.loads(entry["message"])["message"]
                  for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events
                if event["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path):
        """Keep a PNG of what the window shows."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        assert self.driver.save_screenshot(str(path))


@contextmanager
def chromium(width=1280, height=900, mobile=False, dark=False):
    """A fresh headless Chromium of this size (CSS pixels); `mobile` emulates a phone with touch."""
    if missing():
        (pytest.fail
         if os.environ.get("DPTEACH_REQUIRE_BROWSER") == "1" else pytest.skip)(missing())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = Options()
        options.binary_location = find("DPTEACH_CHROMIUM")
        for flag in [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        if mobile:
            metrics = {"width": width, "height": height, "pixelRatio": 2.0, "mobile": True,
                       "touch": True}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        driver = webdriver.Chrome(options, Service(find("DPTEACH_CHROMEDRIVER")))
        try:
            driver.set_page_load_timeout(120)
            driver.set_script_timeout(120)
            browser = Browser(driver)
            browser.scheme("dark" if dark else "light")
            yield browser
        finally:
            driver.quit()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    """Serve a folder on this machine; gives the address, without a slash at its end."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
