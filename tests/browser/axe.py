"""axe-core on an open page: the accessibility rules that a program can check (the script comes with a test package)."""

from pathlib import Path

import axe_playwright_python

SCRIPT = Path(axe_playwright_python.__file__).parent / "axe.min.js"


def violations(page, selector: str = "body", impacts: tuple[str, ...] = ("serious", "critical")) -> list[str]:
    """Return what axe-core finds under `selector` of these impacts, one text for each element."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(SCRIPT.read_text(encoding="utf-8"))
    found = page.evaluate("selector => axe.run(selector, {resultTypes: ['violations']})", selector)
    return [
        f"{rule['impact']}: {rule['id']}: {rule['help']}: {node['html'][:120]}"
        for rule in found["violations"]
        if rule["impact"] in impacts
        for node in rule["nodes"]
    ]
