#!/usr/bin/env python3
"""Writes jinja.json: what Jinja2, set up as transformers sets it up, makes of small templates. usage: jinja.py  (pip install jinja2)"""
import datetime
import json
import pathlib

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Hello, World  "},
    {"role": "assistant", "content": "xxHixx"},
    {"role": "user", "content": "a</think>b</think>c"},
]
# B022: what Gemma's kind of template takes
CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " What is a rill? "}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "And now?\n"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
]
C1, C2, C3 = ("messages[%d]['content']" % i for i in (1, 2, 3))
TEMPLATES = [
    # B024: Python's methods
    f"[{{{{ {C1}.strip() }}}}]", f"[{{{{ {C1}.lstrip() }}}}]", f"[{{{{ {C1}.rstrip() }}}}]",
    f"{{{{ {C2}.strip('x') }}}}|{{{{ {C2}.lstrip('x') }}}}|{{{{ {C2}.rstrip('x') }}}}",
    f"{{{{ {C1}.replace('l', 'L') }}}}", f"{{{{ {C3}.split('</think>')[-1] }}}}", f"{{{{ {C3}.split('</think>')[0].split('z')[-1] }}}}",
    f"{{{{ 'y' if {C2}.startswith('xx') else 'n' }}}}{{{{ 'y' if {C2}.endswith('Hi') else 'n' }}}}",
    f"{{{{ {C1}.upper() }}}}|{{{{ {C1}.lower() }}}}|{{{{ messages[0].role.title() }}}}|{{{{ 'abc'.capitalize() }}}}",
    "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in messages[0].keys() %}{{ k }};{% endfor %}",
    "{{ messages[0].get('name', 'nobody') }}|{{ messages[0].get('role') }}",
    "{{ 'y' if 'role' in messages[0] else 'n' }}{{ 'y' if 'World' in messages[1].content else 'n' }}{{ 'y' if 3 not in [1, 2] else 'n' }}",
    "{{ 'a b'.split() | join('+') }}", "{{ 'abcabc'.find('c') }}",
    # B026: slices, loops, tests, filters, white space
    "{% for m in messages[::-1] %}{{ m.role }},{% endfor %}", "{% for m in messages[1:] %}{{ m.role }},{% endfor %}", "{{ messages[-1].role }}",
    "{{ 'abcdef'[1:3] }}{{ 'abcdef'[:-1] }}{{ 'abc'[::-1] }}",
    "{% for m in messages %}{{ loop.index0 }}{{ loop.index }}{% if loop.first %}F{% endif %}{% if loop.last %}L{% endif %},{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ loop.nextitem.role if loop.nextitem is defined else '-' }};{% endfor %}",
    "{% set ns = namespace(n=0, found=false) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.n = ns.n + 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.n }}{% if ns.found %}!{% endif %}",
    *(f"{{% for v in [messages, messages[0], 'text', none, 1, true] %}}{{% if v is {t} %}}y{{% else %}}n{{% endif %}}{{% endfor %}}"
      for t in ("sequence", "mapping", "iterable", "string", "none", "defined", "number", "boolean", "true")),
    "{% if tools is defined %}y{% else %}n{% endif %}{% if not tools %}n{% endif %}{% if messages is not none %}y{% endif %}",
    "{{ '<b>' | safe }}{{ '<b>' }}", "{{ messages[0] | tojson }}", "{{ messages[:2] | tojson(indent=2) }}", "{{ [1, 2.5, none, true, 'é<'] | tojson }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | join(', ') }}",
    "{{ ['a', 'b'] | join('-') }}[{{ messages[1].content | trim }}]{{ missing | default('d') }}{{ [3, 1, 2] | sort | first }}{{ [3, 1, 2] | last }}",
    "a  {%- if true -%}  b  {%- endif -%}  c", "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "{%- for m in messages %}\n{{- m.role }}\n{%- endfor %}\n", "x {{- ' y ' -}} z",
    "{# a comment #}\nb", "  {# indented #}\nb",
    "{% macro greet(name, mark='!') %}Hi {{ name }}{{ mark }}{% endmacro %}{{ greet('A') }}{{ greet('B', mark='?') }}",
    "{{ 'a' ~ 1 ~ none ~ 2.5 }}", "{{ 'a' + 'b' }}{{ 7 // 2 }}{{ 7 % 3 }}{{ 2 ** 3 }}{{ 'ab' * 2 }}", "{{ messages | length }}{{ messages | count }}",
    "{% set x = 'set' %}{{ x }}{% set y %}block{{ x }}{% endset %}{{ y }}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{% else %}none{% endfor %}", "{% for m in [] %}x{% else %}none{% endfor %}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}", "{{ (1, 2)[1] }}{{ {'a': 1}['a'] }}{{ {'a': {'b': 2}}.a.b }}",
    "{{ strftime_now('%d %B %Y') }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", "{{ bos_token }}{{ eos_token }}{% if add_generation_prompt %}G{% endif %}",
    "{{ 'yes' if messages[0].role == 'system' and not messages[1].role != 'user' else 'no' }}", "{{ \"q\" }}{{ 'it\\'s\\n' }}|", "{{ 'Ab' | upper }}{{ 'Ab' | lower }}{{ 'ab cd' | title }}{{ 'ab' | capitalize }}",
    "{{ ' a ' | string | trim | replace('a', 'b') }}{{ '3' | int + 1 }}{{ -2 | abs }}",
]


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["strftime_now"] = lambda f: datetime.datetime(2025, 3, 9, 14, 5, 6).strftime(f)
    given = dict(messages=MESSAGES, add_generation_prompt=True, bos_token="<|im_start|>", eos_token="<|im_end|>")
    cases = [{"template": t, "text": env.from_string(t).render(**given)} for t in TEMPLATES]
    here = pathlib.Path(__file__)
    gemma = env.from_string(here.with_name("gemma-chat.jinja").read_text())
    given = dict(add_generation_prompt=True, bos_token="<bos>", eos_token="<eos>")
    chats = [{"messages": m, "text": gemma.render(messages=m, **given)} for m in CHATS]
    out = {"now": "2025-03-09T14:05:06", "messages": MESSAGES, "cases": cases, "gemma": chats}
    here.with_name("jinja.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
