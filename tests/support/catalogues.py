"""Collects the inbox's texts from the sources, and updates the message catalogues of all languages.

`python -m tests.support.catalogues` (`make words`) runs it; `tests/server/test_language.py` fails if that was
forgotten. It needs Babel, which is not needed at run time.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stderr
from gettext import GNUTranslations
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

import sayso
from sayso.server.language import sentences

__all__ = ["FOLDER", "collected", "compiled", "texts_of", "untranslated", "updated", "written"]

_MOST_SHOWN = 20

_SOURCE = Path(sayso.__file__).parent
FOLDER = _SOURCE / "server" / "catalogues"
_KEYWORDS: dict[str, Any] = {**DEFAULT_KEYWORDS, "say": None, "say_n": (1, 2), "sayN": (1, 2), "later": None}
_METHODS = [
    ("server/templates/**.html", "jinja2"),
    ("server/static/**.js", "javascript"),
    *((f"{part}/**.py", "python") for part in ("learning", "model", "server", "view")),
]
_OPTIONS: dict[str, dict[str, Any]] = {"server/templates/**.html": {"trimmed": "false", "encoding": "utf-8"}}


def collected() -> Catalog:
    """Return all texts of the sources, without translations."""
    found = Catalog(project="sayso", charset="utf-8")
    comments = ["translators:"]
    # Babel warns of each f-string in a call of `say`, of those that are only values too; for texts there is a test.
    with redirect_stderr(StringIO()):
        texts = [*extract_from_dir(
            str(_SOURCE), _METHODS, _OPTIONS, keywords=_KEYWORDS, comment_tags=comments, strip_comment_tags=True
        )]  # fmt: skip
    for _, _, message, said, context in texts:
        if message:
            found.add(message, auto_comments=said, context=context)
    for sentence in [*sentences()["sentences"], *sentences()["kinds"]]:
        found.add(sentence)
    return found


def _begun(name: str) -> Catalog:
    return Catalog(
        name, project="sayso", version="1", header_comment=f"# The inbox of sayso: {name}.", fuzzy=False,
        msgid_bugs_address="-", last_translator="-", language_team="-", charset="utf-8",
    )  # fmt: skip


def updated(path: Path, source: Catalog) -> Catalog:
    """Return a language's catalogue with exactly the texts of the sources."""
    with path.open("rb") as file:
        catalogue = read_po(file, locale=path.stem)
    catalogue.update(source, no_fuzzy_matching=True, update_creation_date=False)
    catalogue.obsolete.clear()
    return catalogue


def untranslated(catalogue: Catalog) -> list[str]:
    """Return the texts that lack a translation, or one of its plural forms."""
    return [
        repr(one.id) for one in catalogue
        if one.id and not all([one.string] if isinstance(one.string, str) else one.string or [""])
    ]  # fmt: skip


def written(catalogue: Catalog) -> bytes:
    """Serialize a catalogue, sorted by text, so that concurrent changes rarely conflict."""
    out = BytesIO()
    write_po(out, catalogue, width=0, no_location=True, sort_output=True, include_previous=False)
    lines = out.getvalue().splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b'"Generated-By:'))  # it changes with Babel's version


def compiled(catalogue: Catalog) -> bytes:
    """Compile a catalogue to the format that `gettext` reads."""
    out = BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


def texts_of(data: bytes) -> dict[Any, str]:
    """Parse the texts from the result of `compiled`, from any version of Babel."""
    texts: dict[Any, str] = dict(vars(GNUTranslations(BytesIO(data)))["_catalog"])
    return texts | {"": "".join(line for line in texts[""].splitlines() if not line.startswith("Generated-By:"))}


def main() -> None:
    """Update the catalogues of the existing languages, or of the named ones; create missing ones."""
    source = collected()
    paths = [FOLDER / f"{name}.po" for name in sys.argv[1:]] or sorted(FOLDER.glob("*.po"))
    for path in paths:
        if not path.exists():
            path.write_bytes(written(_begun(path.stem)))
        catalogue = updated(path, source)
        path.write_bytes(written(catalogue))
        path.with_suffix(".mo").write_bytes(compiled(catalogue))
        missing = untranslated(catalogue)
        shown = missing if len(missing) <= _MOST_SHOWN else [*missing[:_MOST_SHOWN], "..."]
        print(f"{path.name}: {len(catalogue)} texts, {len(missing)} without a translation", *shown, sep="\n  ")


if __name__ == "__main__":
    main()
