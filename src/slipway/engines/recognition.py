"""Recognition: detects the engine in a container of another author's manifest, and parses its command line. Pure.

The command identifies the engine: a Python module or a program, alone or in a shell script. Without a command, the
image's entrypoint runs, and the image's name identifies the engine. The controller also runs unrecognized programs, but
treats their settings as unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slipway.engines import ENGINES
from slipway.engines.definition.engine import Engine, Program
from slipway.kube.objects import Object

ROUTER = Program(
    modules=("sglang_router",),
    names=("sglang-router", "smg"),
    image=r"sglang[-_]router|smg",
)
"""Routers, which only forward requests. The name of a router's image resembles that of the engine."""
ROUTER_PORT = 30000
UNKNOWN = Program(port_flags=())
PORT = 8080
"""Default port of unrecognized programs."""
ENGINE_OF: Mapping[Program, Engine] = {engine.program: engine for engine in ENGINES.values() if engine.program}
PROGRAMS = (ROUTER, *ENGINE_OF)
MODULES: Mapping[str, Program] = {module: program for program in PROGRAMS for module in program.modules}
EXECUTABLES: Mapping[str, Program] = {name: program for program in PROGRAMS for name in program.names}
IMAGES = tuple((re.compile(program.image), program) for program in PROGRAMS if program.image)
"""Pattern for an image name, and its program. The first match counts."""
SHELLS = frozenset(("sh", "bash", "dash", "ash"))
OPERATORS = frozenset("();<>|&")
BREAKS = "();<>|&\n"
"""Characters that end a command in a shell script: operators and the end of a line."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
NO_DEFAULT = re.compile(r"\$\{\w+:?-\}")
"""A reference to an environment variable with an empty default. A script uses it to keep the container's value."""
PREFIXES = ("exec", "env", "nohup")
"""Commands that run another command, which follows them."""
REFERENCE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
NUMBER = re.compile(r"-\d")
LONGEST_SCRIPT = 65536
"""Maximum length of a script in characters. The rest is ignored."""
MOST_EXPANDED = 2 << 20
"""Maximum length of a command line in characters, after environment variables are expanded. Linux rejects longer
command lines."""


class Recognised(msgspec.Struct, frozen=True, kw_only=True):
    """The engine in a container, and the settings in its command line."""

    engine: Engine | None = None
    """The recognized engine; None: the program is unrecognized or a router."""
    router: bool = False
    """Whether the program only forwards requests to engines."""
    served_names: tuple[str, ...] = ()
    """The engine's names for its model, in order."""
    port: int = PORT
    """The port on which the program listens."""
    argument_port: int = 0
    """The port in the program's arguments; 0 if they do not set it."""
    args: tuple[str, ...] = ()
    """The program's arguments, in which known environment variables are expanded. Empty if the command is unrecognized
    or too long."""
    last: bool = True
    """Whether the command line ends with the program's arguments, so that more can be appended."""

    @property
    def public_names(self) -> tuple[str, ...]:
        """The served names that contain a slash and therefore identify a model, such as
        ``meta-llama/Llama-3.2-1B-Instruct``. Other names, such as ``vllm-model``, paths and unexpanded environment
        variables are omitted."""
        return tuple(name for name in self.served_names if "/" in name.strip("/") and name[:1] not in "/.$")


def recognise(container: Object) -> Recognised:
    """Detect the engine of a container, and parse its command line. Raise no error even if the container is invalid."""
    variables = _variables(container)
    words = _expanded(words_of(container), variables)
    program, args, last = _program(words)
    if program is UNKNOWN and not container.get("command"):
        program, args = _of_image(str(container.get("image", ""))), words
    flag_port = _port(" ".join(values_of_flags(args, *program.port_flags)[:1]))
    variable_port = _port(variables.get(program.port_variable, ""))
    return Recognised(
        engine=ENGINE_OF.get(program),
        router=program is ROUTER,
        served_names=_served_names(program, args),
        port=flag_port or variable_port or _declared(container) or _usual_port(program),
        argument_port=flag_port,
        args=tuple(args),
        last=last,
    )


def script_of(container: Object) -> tuple[str, int] | None:
    """Return the location of a shell script in a container: the field, ``command`` or ``args``, and the index in it.
    Return None if the command is not a shell with a script."""
    texts = {field: _texts(container, field) for field in ("command", "args")}
    line = [(field, place) for field, words in texts.items() for place in range(len(words))]
    words = [*texts["command"], *texts["args"]]
    if not words or words[0].rsplit("/", 1)[-1] not in SHELLS:
        return None
    for position, word in enumerate(words[1:-1], start=1):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return line[position + 1]
    return None


def words_of(container: Object) -> list[str]:
    """Return the words of a container's command line. If a shell runs a script, return the words of the script."""
    script = script_of(container)
    if script is None:
        return [*_texts(container, "command"), *_texts(container, "args")]
    field, place = script
    return _split(_texts(container, field)[place])


def replaced_words(container: Object) -> list[str]:
    """Return the words of a container's command line or script, in which known environment variables are expanded. A
    variable in a script may expand to several words. Empty if the result has more than ``MOST_EXPANDED`` characters."""
    script, words = script_of(container), words_of(container)
    pairs = zip(words, _expanded(words, _variables(container)), strict=False)
    return [part for word, whole in pairs for part in (whole.split() if script and whole != word else [whole])]


def assigned(container: Object) -> tuple[str, ...]:
    """Return the names of the environment variables that a command line sets for its program: directly before the
    program, with ``env``, or with ``export`` in a script. Omit those whose value is known to be empty."""
    variables = _variables(container)
    pairs: list[tuple[str, str]] = []
    for command in _commands(container):
        before, place = _assignments(command, 0)
        while command[place : place + 1] and command[place] in PREFIXES:
            more, place = _assignments(command, place + 1)
            before += more
        if command[place : place + 1] == ["export"]:
            pairs += _assignments(command, place + 1)[0]
        elif _starts(command[place : place + 3]):
            pairs += before
    return tuple(dict.fromkeys(name for name, value in pairs if _may_be_set(value, variables)))


def values_of_flags(args: Sequence[str], *flags: str) -> list[str]:
    """Return the values of the last flag in ``args`` that is one of ``flags``: the words up to the next flag, or the
    text after ``=``. Empty if there is none. ``flags`` must be normalized (see :func:`spelling`)."""
    spelled = [spelling(word.partition("=")[0]) for word in args]
    last = next((place for place in reversed(range(len(args))) if spelled[place] in flags), None)
    if last is None:
        return []
    if "=" in args[last]:
        return [args[last].partition("=")[2]]
    end = next((place for place in range(last + 1, len(args)) if is_flag(args[place])), len(args))
    return list(args[last + 1 : end])


def is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not NUMBER.match(word)


def spelling(flag: str) -> str:
    """Normalize a flag: replace the underscores in a long flag with hyphens."""
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _texts(container: Object, field: str) -> list[str]:
    value = container.get(field)
    return [str(word) for word in value] if isinstance(value, list | tuple) else []


def _commands(container: Object) -> list[list[str]]:
    """Split a script into commands, and omit commands in parentheses. Without a script, return the command line.
    Empty if a quote is not closed."""
    script = script_of(container)
    if script is None:
        return [words_of(container)]
    plain = COMMENT.sub("", _texts(container, script[0])[script[1]][:LONGEST_SCRIPT]).replace("\\\n", " ")
    lexer = shlex.shlex(REFERENCE.sub(_braced, plain), posix=True, punctuation_chars=BREAKS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    commands: list[list[str]] = [[]]
    depth = 0
    try:
        for word in lexer:
            if word and set(word) <= set(BREAKS):
                depth += word.count("(") - word.count(")")
                commands.append([])
            elif depth == 0:
                commands[-1].append(word)
    except ValueError:  # an unterminated quote
        return []
    return commands


def _assignments(command: Sequence[str], place: int) -> tuple[list[tuple[str, str]], int]:
    """Return the variable assignments in a command from the index ``place`` on, and the index after them."""
    pairs = []
    while place < len(command) and (match := ASSIGNMENT.fullmatch(command[place])):
        pairs.append((match[1], match[2]))
        place += 1
    return pairs, place


def _starts(command: Sequence[str]) -> bool:
    """Whether a command that begins with these words runs a known program, instead of only naming it."""
    if command[1:2] == ["-m"]:
        return " ".join(command[2:3]).split(".")[0] in MODULES
    return bool(command) and _executable(command[0], command[1:2]) is not None


def _may_be_set(value: str, variables: Mapping[str, str]) -> bool:
    plain = NO_DEFAULT.sub("", value)
    return bool(REFERENCE.sub(lambda match: _value(match, variables)[:1], plain))


def _split(script: str) -> list[str]:
    """Split a shell script into words. Operators are separate words."""
    plain = COMMENT.sub("", script[:LONGEST_SCRIPT]).replace("\\\n", " ")
    lexer = shlex.shlex(REFERENCE.sub(_braced, plain), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:  # an unterminated quote
        return plain.split()


def _braced(reference: re.Match[str]) -> str:
    """Convert a reference from Kubernetes' to the shell's syntax, because its parentheses would be operators."""
    return f"${{{reference[1]}}}" if reference[1] else reference[0]


def _variables(container: Object) -> dict[str, str]:
    """Return the container's environment variables that have literal values."""
    env: Any = container.get("env")
    entries = [entry for entry in env if isinstance(entry, dict)] if isinstance(env, list | tuple) else []
    return {str(entry.get("name")): str(entry["value"]) for entry in entries if entry.get("value") is not None}


def _expanded(words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return words in which known environment variables are expanded. Empty if they are too long, because a few
    references to a long value could use all of the controller's memory."""
    size = sum(map(len, words))
    for word in words:
        size += sum(len(_value(match, variables)) for match in REFERENCE.finditer(word))
    if size > MOST_EXPANDED:
        return []
    return [REFERENCE.sub(lambda match: _value(match, variables), word) for word in words]


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    return variables.get(match[1] or match[2] or match[3], match[0])


def _program(words: Sequence[str]) -> tuple[Program, list[str], bool]:
    """Return the program in a command line, its arguments, and whether the command line ends with them. An unrecognized
    program has no arguments."""
    for position, word in enumerate(words):
        module = words[position + 1].split(".")[0] if word == "-m" and position + 1 < len(words) else ""
        program = MODULES.get(module) or _executable(word, words[position + 1 : position + 2])
        if program:
            rest = list(words[position + (2 if module in MODULES else 1) :])
            end = next((place for place, one in enumerate(rest) if one and set(one) <= OPERATORS), len(rest))
            return program, rest[:end], end == len(rest)
    return UNKNOWN, [], True


def _executable(word: str, following: Sequence[str]) -> Program | None:
    program = EXECUTABLES.get(word.rsplit("/", 1)[-1])
    return program if program and (not program.subcommand or program.subcommand in following) else None


def _of_image(reference: str) -> Program:
    repository = reference.partition("@")[0].rsplit("/", 1)[-1].partition(":")[0].lower()
    return next((program for pattern, program in IMAGES if pattern.fullmatch(repository)), UNKNOWN)


def _served_names(program: Program, args: Sequence[str]) -> tuple[str, ...]:
    names = values_of_flags(args, *program.name_flags) if program.name_flags else []
    if not program.several_names:
        names = [part.strip() for part in " ".join(names[:1]).split(",")]
    return tuple(dict.fromkeys(one for one in names if one))


def _port(text: str) -> int:
    """Return the port at the end of a text such as ``0.0.0.0:8080``; 0 if there is none."""
    digits = text.rsplit(":", 1)[-1]
    return int(digits) if re.fullmatch(r"[0-9]{1,5}", digits) and 0 < int(digits) < 65536 else 0


def _declared(container: Object) -> int:
    value = container.get("ports")
    ports = [port.get("containerPort") for port in value if isinstance(port, dict)] if isinstance(value, list) else []
    return next((port for port in ports if isinstance(port, int) and 0 < port < 65536), 0)


def _usual_port(program: Program) -> int:
    """Return the default port of a program, or ``PORT`` for an unrecognized program."""
    if program is ROUTER:
        return ROUTER_PORT
    return ENGINE_OF[program].port if program in ENGINE_OF else PORT
