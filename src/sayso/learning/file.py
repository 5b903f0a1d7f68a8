"""What was learned as a file: a JSON object on each line, CSV for spreadsheets, or Parquet where pyarrow is installed.

Records are written as they are read and never held together. The invariant: every line of JSON is plain ASCII, and no
cell of a CSV hides a character or is taken for a formula.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from typing import IO, Any, Literal, get_args

from sayso import errors
from sayso.model.canonical.tags import dumps
from sayso.model.text import cell, storable

__all__ = ["FORMATS", "Format", "csv_lines", "json_lines", "need_parquet", "write_parquet"]

Format = Literal["jsonl", "csv", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)

_LOT = 5_000


def json_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each record, with its end."""
    for record in records:
        yield dumps(record) + "\n"


def csv_lines(records: Iterable[dict[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Yield the names of the columns, and then a row for each record, with its end."""
    yield _row(columns)
    for record in records:
        yield _row([record[name] for name in columns])


def _row(cells: Sequence[Any]) -> str:
    page = io.StringIO()
    csv.writer(page).writerow([cell(one) if isinstance(one, str) else one for one in cells])
    return page.getvalue()


def need_parquet() -> None:
    """Raise `ConfigError` where pyarrow is not installed."""
    try:
        import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            "--format parquet needs pyarrow, which is not installed; nothing was written: `pip install pyarrow`, or"
            " take --format jsonl or csv"
        ) from error


def write_parquet(file: IO[bytes], records: Iterable[dict[str, Any]], columns: Sequence[str]) -> int:
    """Write records to a file, in lots; return how many.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    need_parquet()
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    kinds = {"seconds": arrow.float64(), "votes": arrow.int64(), "is_edited": arrow.bool_()}
    schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in columns])
    pending, count = iter(records), 0
    with parquet.ParquetWriter(file, schema) as writer:
        while lot := list(islice(pending, _LOT)):
            writer.write_table(arrow.Table.from_pylist([_stored(record) for record in lot], schema=schema))
            count += len(lot)
    return count


def _stored(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose texts a file takes: a program may have brought half of a character."""
    return {name: storable(value) if isinstance(value, str) else value for name, value in record.items()}
