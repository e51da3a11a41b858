# SPDX-License-Identifier: Apache-2.0
"""What Jinja2 makes of chat templates, with the settings that transformers uses.

The environment is set up as transformers 5 documents it for
apply_chat_template(): an immutable sandbox, trim_blocks, lstrip_blocks, break
and continue, {% generation %}, raise_exception(), strftime_now(), a tojson that
is json.dumps(), namespaces without names that begin with an underscore.
"""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

NOW = 1767225599    # 2025-12-31 23:59:59 UTC


class Raised(jinja2.exceptions.TemplateError):
    pass


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"],
                                       drop_needle=True)
        call = self.call_method("_text")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None,
           sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


def strftime_now(fmt):
    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
    return now.replace(tzinfo=None).strftime(fmt)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception,
                       strftime_now=strftime_now, dict=Dict(),
                       namespace=Namespace)
    return env


def outcomes(env, source, chats):
    """[kind, text] for the variables of each chat.

    ok, raised, failed, or syntax for what does not compile.
    """
    try:
        template = env.from_string(source)
    except (jinja2.exceptions.TemplateError, SyntaxError) as e:
        return [["syntax", str(e)]] * len(chats)
    return [outcome(template, variables) for variables in chats]


def outcome(template, variables):
    try:
        return ["ok", template.render(**json.loads(json.dumps(variables)))]
    except Raised as e:
        return ["raised", str(e)]
    except Exception as e:          # whatever Python says to such operands
        return ["failed", "%s: %s" % (type(e).__name__, e)]
