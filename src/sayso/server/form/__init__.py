"""A call's arguments, or a question's answer, as fields of a form; and a form read back."""

from sayso.server.form.build import answer_fields, argument_fields
from sayso.server.form.read import Edit, read_answer, read_edit
from sayso.server.form.widget import Widget, with_problems

__all__ = ["Edit", "Widget", "answer_fields", "argument_fields", "read_answer", "read_edit", "with_problems"]
