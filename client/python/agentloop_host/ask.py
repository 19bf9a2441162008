"""Asking a human from inside a running call."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.types_pb2 import SelectOption

from .failure import ToolFailed

# What the contract allows.
MAX_QUESTIONS = 16
MAX_ID_BYTES = 128
MAX_QUESTION_BYTES = 128 << 10  # beyond what the server takes; one that no frame could carry is not sent

# Each an id and what people read; a text alone is both.
Options = Mapping[str, str] | Iterable[str]


class NoAnswer(ToolFailed):
    """There is no answer and will not be: nobody answered in time, or it is no question that can be asked.

    A tool that lets it pass fails with these words.
    """


def question(
    text: str, number: int, options: Options | None, multiple: bool, name: str | None, timeout: timedelta | None
) -> pb.NeedInput:
    """The question of this number, from 1, of its call. Errors: NoAnswer."""
    if number > MAX_QUESTIONS:
        raise NoAnswer(f"a call may ask {MAX_QUESTIONS} questions at most")
    name = f"question-{number}" if name is None else name
    if not 1 <= len(name.encode()) <= MAX_ID_BYTES:
        raise NoAnswer(f"the name of a question has 1 to {MAX_ID_BYTES} bytes")
    if timeout is not None and timeout < timedelta():
        raise NoAnswer("a timeout is not negative")
    asked = pb.NeedInput(input_id=name, question=text, options=_options(options), multiple=multiple, timeout=timeout)
    if options is not None and not asked.options:
        raise NoAnswer("there is nothing to choose from")
    if asked.ByteSize() > MAX_QUESTION_BYTES:
        raise NoAnswer(f"the question has more than {MAX_QUESTION_BYTES} bytes")
    return asked


def _options(options: Options | None) -> list[SelectOption]:
    if isinstance(options, Mapping):
        return [SelectOption(id=id, label=label) for id, label in options.items()]
    return [SelectOption(id=text, label=text) for text in options or ()]


def answer(response: pb.InputResponse):
    """A text, or the ids of what was chosen. Errors: NoAnswer."""
    match response.WhichOneof("response"):
        case "text":
            return response.text
        case "selection":
            return list(response.selection.option_ids)
    raise NoAnswer(f"no answer: {response.refused}")
