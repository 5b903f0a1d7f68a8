"""The canonical form: exactly one text for each set of arguments.

`form` encodes, `decode` decodes, `tags` defines the scalars that JSON lacks, and `names` the names of classes.
"""

from sayso.model.canonical.form import (
    LIMIT_BYTES,
    LIMIT_DEPTH,
    LIMIT_DIGITS,
    LIMIT_VALUES,
    MASK,
    Form,
    Json,
    check_round_trip,
    class_name,
    decode,
    digest_input,
    display,
    encode,
    form_of,
    function_name,
    is_same,
    load,
    read,
    text_of,
    value_of,
)

__all__ = [
    "LIMIT_BYTES",
    "LIMIT_DEPTH",
    "LIMIT_DIGITS",
    "LIMIT_VALUES",
    "MASK",
    "Form",
    "Json",
    "check_round_trip",
    "class_name",
    "decode",
    "digest_input",
    "display",
    "encode",
    "form_of",
    "function_name",
    "is_same",
    "load",
    "read",
    "text_of",
    "value_of",
]
