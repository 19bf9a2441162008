"""Questions that a running call asks a human."""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.types_pb2 import URL_OUTCOME_DONE, SelectOption

from .failure import ToolFailed
from .frame import valid

# Bounds of the contract.
MAX_QUESTIONS = 16
MAX_ID_BYTES = 128
MAX_RESUME_STATE_BYTES = 64 << 10
MAX_RESUME_STATES = 256  # of one attempt
MAX_TIMEOUT = timedelta(seconds=315_576_000_000)
MAX_QUESTION_BYTES = 128 << 10  # above the server's own bound; a larger question is not sent

WRONG_ANSWER = "the answer does not fit the question"

# Options by id, with a label for people. A text alone is id and label.
Options = Mapping[str, str] | Iterable[str]


class NoAnswer(ToolFailed):
    """There will be no answer: a human declined, nobody answered in time, or the question is invalid.

    A tool that does not catch it fails with its message.
    """


def question(
    text: str, number: int, name: str | None, timeout: timedelta | None, options: Options | None = None, **fields
) -> pb.NeedInput:
    """The frame of a question. `number` counts the questions of its call from 1. Errors: NoAnswer."""
    state = fields.get("resume_state")
    if state is not None and name is None:
        raise NoAnswer("a question with a resume state needs a name")
    check_state(state)
    name = f"question-{number}" if name is None else valid(name)
    if not 1 <= len(name.encode()) <= MAX_ID_BYTES:
        raise NoAnswer(f"the name of a question has 1 to {MAX_ID_BYTES} bytes")
    if timeout is not None and not timedelta() < timeout <= MAX_TIMEOUT:
        raise NoAnswer(f"a timeout is more than zero, and at most {MAX_TIMEOUT.days} days")
    fields = {field: valid(value) if isinstance(value, str) else value for field, value in fields.items()}
    frame = pb.NeedInput(input_id=name, question=valid(text), options=_options(options), timeout=timeout, **fields)
    if options is not None and not frame.options:
        raise NoAnswer("there is nothing to choose from")
    if frame.ByteSize() > MAX_QUESTION_BYTES:
        raise NoAnswer(f"the question has more than {MAX_QUESTION_BYTES} bytes")
    return frame


def check_state(state: bytes | None) -> None:
    """Errors: NoAnswer."""
    if state is not None and len(state) > MAX_RESUME_STATE_BYTES:
        raise NoAnswer(f"a resume state has at most {MAX_RESUME_STATE_BYTES} bytes")


def _options(options: Options | None) -> list[SelectOption]:
    if isinstance(options, Mapping):
        return [SelectOption(id=valid(id), label=valid(label)) for id, label in options.items()]
    return [SelectOption(id=valid(text), label=valid(text)) for text in options or ()]


def json_text(value: Mapping[str, Any] | str) -> str:
    """The text of a JSON object, which may be given as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def answer(response: pb.InputResponse, kind: str):
    """The text of an answer, the ids of the chosen options, the fields of a form, or True for a visit that was made.

    `kind` is the field of the answer that the question asks for. Errors: NoAnswer.
    """
    given = response.WhichOneof("response")
    if given not in (kind, "refused"):
        raise NoAnswer(WRONG_ANSWER)
    match given:
        case "text":
            return response.text
        case "selection":
            return list(response.selection.option_ids)
        case "form_json":
            return json.loads(response.form_json)
        case "url":
            return response.url == URL_OUTCOME_DONE
    raise NoAnswer(f"no answer: {response.refused}")
