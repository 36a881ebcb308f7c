"""HTML pages that stand alone, made from the templates of this folder."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from virnucpro.formatting import calls_text, counted, part_of, percent, regions_text, seconds_text
from virnucpro.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(template: str, **values: object) -> str:
    """Return the page of a template; jinja2.UndefinedError where a value of it is missing."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only reports need the time

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = __version__
    texts = (calls_text, counted, part_of, percent, regions_text, seconds_text)
    own = (commas, quoted, sha256, share, shell_words)
    environment.filters |= {function.__name__: function for function in (*texts, *own)}
    return environment


def commas(number: int) -> str:
    """Return a number with commas between thousands."""
    return f"{number:,}"


def quoted(path: str) -> str:
    """Return a path as it stands in a link."""
    return quote(os.fsencode(path))


def sha256(script: str) -> str:
    """Return the checksum by which a browser knows the script that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def share(part: float, whole: float) -> str:
    """Return a share in percent, with which a small one is not mistaken for none."""
    if not part:
        return "0 %"
    return percent(part / whole, 1) if part / whole >= 0.001 else "< 0.1 %"


def shell_words(words: Iterable[object]) -> str:
    """Return a command as it can be given to a shell."""
    return shlex.join(map(str, words))
