"""The watch over the browser must itself be able to fail."""

import pytest

from tests.browser.conftest import do_without, is_local

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8888/lab", "ws://localhost:1/api", "data:text/html,x", "blob:http://localhost/1"]
)
def test_addresses_of_this_machine(url):
    assert is_local(url)


@pytest.mark.parametrize(
    "url", ["https://example.com/", "wss://example.com/", "http://127.0.0.1.example.com/", "http://10.0.0.1/"]
)
def test_addresses_of_other_machines(url):
    assert not is_local(url)


def test_a_request_and_an_error_are_noticed(watched):
    page, watch = watched
    page.goto(
        "data:text/html,<img src='https://example.com/a.png'><script>console.error('one'); throw Error('two')</script>"
    )
    page.evaluate("() => { new WebSocket('wss://example.com/') }")
    page.wait_for_load_state("networkidle")
    assert {"https://example.com/a.png", "wss://example.com/"} <= set(watch.away)
    assert "one" in watch.errors
    assert any("two" in error for error in watch.errors)


def test_without_a_browser_a_laptop_skips_and_ci_fails(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser"):
        do_without("no browser")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no browser; in CI the browser tests must run"):
        do_without("no browser")
