"""Programs that try to harm, by what they try, and what their model hears of it.

A key is a pattern of the error; FINE is the key of programs that end with a value, because what they tried
harms nobody, and ANY of those that may end in both ways, as the time decides. OUTSIDE in a program stands for
a path outside of its workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FINE: Final = ""
ANY: Final = "any"

IMPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "not run: .*unresolved-import": (
        "import subprocess\nsubprocess",
        "import socket\nsocket",
        "import ctypes\nctypes",
        "import shutil\nshutil",
        "import importlib\nimportlib",
        "import inspect\ninspect",
        "import gc\ngc",
        "import pickle\npickle",
        "from os import system\nsystem('true')",
        "from . import x",
        "from asyncio import create_subprocess_exec\nawait create_subprocess_exec('true')",
    ),
    "raised ModuleNotFoundError": ("import builtins\nbuiltins",),
    "raised RuntimeError": ("import os\nos.environ['PATH']",),
    "not run: .*unresolved-attribute": (
        "import sys\nsys.modules",
        "import sys\nsys.exit(3)",
        "import asyncio\nawait asyncio.open_connection('localhost', 80)",
        "import asyncio\nasyncio.get_event_loop().run_until_complete(1)",
    ),
    "raised PermissionError": (
        "import os.path\nos.path.exists('/etc/passwd')",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "from pathlib import Path\nPath('OUTSIDE').write_text('x')",
    ),
    "not run: .*unresolved-reference": (
        "__import__('os').system('true')",
        "compile('1', 'x', 'eval')",
        "open('OUTSIDE', 'w').write('x')",
        "open('/etc/passwd').read()",
        "input()",
        "breakpoint()",
        "globals()['read']",
        "vars()",
    ),
    FINE: (
        "exec('import os')",
        "eval('1 + 1')",
    ),
}

WALKS: Final[Mapping[str, tuple[str, ...]]] = {
    "raised AttributeError": (
        "x = ()\nx.__class__.__mro__",
        "x = ''\nx.__class__.__mro__",
        "x = read\nx.__class__.__mro__",
        "x = map\nx.__class__.__mro__",
        "x = len\nx.__class__.__mro__",
        "x = (lambda: 0)\nx.__class__.__mro__",
        "x = 1\nx.__class__.__mro__",
        "x = Exception('x')\nx.__class__.__mro__",
        "x = print\nx.__class__.__mro__",
        "read.__globals__",
        "map.__code__.co_consts",
        "map.__closure__",
        "object.__subclasses__()",
        "'{0.__class__.__mro__}'.format(1)",
        "f'{read.__class__.__init__}'",
        "import json\njson.loads.__globals__['__builtins__']",
        "import re\nre.__loader__",
        "import asyncio\nasyncio.__dict__",
        "async def f(): pass\nc = f()\nc.cr_frame",
    ),
    "not run: .*unresolved-attribute": (
        "().__class__.__base__.__subclasses__()",
        "read.__self__",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.__traceback__.tb_frame.f_globals",
        "import functools\nfunctools.reduce.__self__",
    ),
    "not run: .*unresolved-reference": (
        "getattr((), '__class__')",
        "getattr(read, '__glo' + 'bals__')",
        "setattr(read, 'x', 1)",
    ),
    FINE: (
        "type('X', (), {})()",
        "__name__ + __file__",
    ),
    "raised NameError": ("__builtins__",),
    "not run: .*unused-awaitable": ("class X:\n    def __del__(self): read(path='a')\nX()",),
    "raised NotImplementedError": ("class X(dict):\n    pass\nX()",),
}

BOMBS: Final[Mapping[str, tuple[str, ...]]] = {
    "raised MemoryError": (
        "'x' * 10**10",
        "b'x' * 10**12",
        "[0] * 10**11",
        "list(range(10**9))",
        "2 ** 10**9",
        "10 ** 10 ** 10",
        "1 << 10**12",
        "x = 'a'\nfor at in range(60):\n    x += x",
        "x = [1]\nfor at in range(60):\n    x += x",
        "{at: 'x' * 1000 for at in range(10**7)}",
        "'%1000000000d' % 1",
        "f'{1:1000000000}'",
        "'x'.ljust(10**10)",
        "','.join(['x' * 10**6] * 10**6)",
        "('x' * 10**6).replace('x', 'y' * 10**6)",
        "import itertools\nlist(itertools.product(range(100), repeat=8))",
        "sorted(range(10**9))",
        "set(range(10**9))",
        "tuple(range(10**9))",
        "'x' in 'y' * 10**9",
        "bytes(10**11)",
        "import random\nrandom.sample(range(10**9), 10**9)",
        "import collections\ncollections.Counter(range(10**9))",
    ),
    "raised MemoryError|raised TimeoutError": ("x = []\nfor at in range(60):\n    x = [x, x]\nstr(x)",),
    FINE: ("import re\nre.match('(a+)+$', 'a' * 40 + 'b')",),
    "raised TimeoutError": (
        "import math\nmath.factorial(10**7)",
        "while True:\n    pass",
    ),
    "raised json.JSONDecodeError": ("import json\njson.loads('[' * 10**6)",),
    "raised ValueError": (
        "import json\njson.loads('9' * 10**7)",
        "int('9' * 10**6)",
        "str(10 ** 10**6)",
    ),
    "not run: .*unresolved-reference": ("bytearray(10**11)",),
}

DEPTHS: Final[Mapping[str, tuple[str, ...]]] = {
    "raised RecursionError": (
        "def f(n): return f(n + 1)\nf(0)",
        "f = lambda n: f(n + 1)\nf(0)",
        "async def f(n): return await f(n + 1)\nawait f(0)",
        "x = []\nfor at in range(10**5):\n    x = [x]\nx == x[0]",
        "x = []\nfor at in range(10**5):\n    x = [x]\nimport json\njson.dumps(x)",
    ),
    "raised TimeoutError": (
        (
            "def f(n):\n"
            "    try:\n"
            "        return f(n + 1)\n"
            "    except RecursionError:\n"
            "        return f(n + 1)\n"
            "f(0)"
        ),
    ),
    FINE: (
        "x = []\nfor at in range(10**5):\n    x = [x]\nx",
        "x = []\nfor at in range(10**5):\n    x = [x]\nrepr(x)",
        "x = []\nx.append(x)\nx",
        "x = {}\nx['x'] = x\nx",
        "x = []\nx.append(x)\nx == x",
        "x = []\nfor at in range(90):\n    x = [x]\nx",
        "(" * 150 + "1" + ")" * 150,
        "\n".join(" " * at + "if 1:" for at in range(90)) + "\n" + " " * 90 + "1",
        "f'{" * 100 + "1" + "}'" * 100,
        "'" + "x" * 90000 + "'",
        "[" + "0," * 40000 + "]",
        "\n" * 90000 + "1",
        ";".join(["1"] * 40000),
        "\\\n" * 40000 + "1",
        "#" + "x" * 90000,
        "def f(" + ", ".join(f"a{at}" for at in range(10000)) + "): pass\n1",
    ),
    "not run: .*invalid-argument-type": (
        "x = []\nfor at in range(5000):\n    x = [x]\nawait append(text=x)",
        "x = []\nx.append(x)\nawait append(text=x)",
    ),
    "raised ValueError": (
        "x = []\nx.append(x)\nimport json\njson.dumps(x)",
        "0x" + "f" * 90000,
    ),
    "not run: Source is too": (
        "(" * 20000 + "1" + ")" * 20000,
        "[" * 20000 + "]" * 20000,
        "-" * 20000 + "1",
        "not " * 20000 + "1",
        " + ".join(["1"] * 20000),
        ".a".join(["x"] * 20000),
        "x" + "[0]" * 20000,
        "\n".join("\t" * at + "if 1:" for at in range(400)) + "\n" + "\t" * 400 + "1",
        "lambda: " * 10000 + "1",
    ),
    "not run: .*unresolved-reference": ("x" * 90000,),
    "not run: Exceeds the limit": ("9" * 90000,),
    "not run: more than 255": ("print(" + ", ".join(["1"] * 30000) + ")",),
}

STORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "raised RuntimeError: Internal error": (
        "raise SystemExit(3)",
        (
            "for at in range(10**5):\n"
            "    try:\n"
            "        raise ValueError(at)\n"
            "    except ValueError as e:\n"
            "        last = e\n"
            "raise last"
        ),
        (
            "e = None\n"
            "for at in range(10**4):\n"
            "    try:\n"
            "        raise ValueError(at) from e\n"
            "    except ValueError as f:\n"
            "        e = f\n"
            "raise e"
        ),
        (
            "import asyncio\n"
            "async def f(n): raise ValueError(n)\n"
            "await asyncio.gather(*[f(n) for n in range(1000)])"
        ),
        (
            "import asyncio\n"
            "async def f(n):\n"
            "    await append(text=str(n))\n"
            "    raise ValueError(n)\n"
            "await asyncio.gather(f(1), f(2), f(3))"
        ),
    ),
    "raised KeyboardInterrupt": ("raise KeyboardInterrupt()",),
    "raised BaseException": ("raise BaseException('x')",),
    "not run: .*unresolved-reference": ("raise GeneratorExit()",),
    "raised MemoryError": (
        "raise MemoryError('mine')",
        "while True:\n    try:\n        [0] * 10**10\n    except MemoryError:\n        pass",
    ),
    "raised RecursionError": ("raise RecursionError('mine')",),
    "raised StopIteration": ("raise StopIteration()",),
    "not run: .*invalid-raise": ("raise 7",),
    "raised ValueError": (
        "raise ValueError('x' * 10**6)",
        "raise ValueError('\\x00\\ud800\\u202e')",
    ),
    "raised RuntimeError": ("raise RuntimeError('PermissionDenied: told you')",),
    "raised TimeoutError": ("while True:\n    try:\n        pass\n    except BaseException:\n        pass",),
    "raised KeyError": ("try:\n    raise ValueError('x')\nfinally:\n    raise KeyError('y')",),
    "raised AssertionError": ("assert False, 'x' * 10**6",),
}

CALLS: Final[Mapping[str, tuple[str, ...]]] = {
    "raised TypeError: a program makes at most 10,000 calls": (
        "for at in range(10**6):\n    await look(text='x')",
        "import asyncio\nawait asyncio.gather(*[look(text=str(at)) for at in range(10**6)])",
    ),
    "raised TypeError: a program leaves at most 1,000 notes": ("for at in range(10**6):\n    log('x')",),
    ANY: (
        "for at in range(10**6):\n    print('x' * 100)",
        "await look(text='x', timeout_s=-1)",
        "await look(text='x', timeout_s=0)",
    ),
    FINE: (
        "print('x' * 10**7)",
        "print(*['x'] * 10**5, sep='\\n' * 10)",
        "print('\\x00\\x1b[2J\\u202e')",
        "log('\\x00' * 3000)",
        "phase('x' * 10**6)",
        "await look(text=None)",
        "await look(text='x', timeout_s=1e308)",
        "await look(text='x' * 10**7)",
        "x = look(text='x')\nawait x\nawait x",
        "x = look\nawait x(text='x')",
        "async def twice(f): return [await f(text='x'), await f(text='y')]\nawait twice(look)",
        "[look, read]",
        "for at in range(2000):\n    try:\n        log('x')\n    except TypeError:\n        pass",
        "import asyncio\nawait asyncio.sleep(10**9)",
        "import time\ntime.sleep(10**9)",
        "await append(text='../../x')",
    ),
    "not run: .*missing-argument": ("log()",),
    "not run: .*invalid-argument-type": (
        "log(1, 2, x=3)",
        "phase([1])",
        "await look(text=7)",
        "await look(text='x', timeout_s='soon')",
        "await look(**{'text': 'x', '': 1})",
        "await look(text={1: 2})",
        "await look(text=float('nan'))",
        "await look(text=10**5000)",
        "await look(text=b'x')",
        "await look(text=look)",
    ),
    "not run: .*too-many-positional-arguments": ("await look('x')",),
    "not run: .*unknown-argument": (
        "await look(texts='x')",
        "await look(text='x', _group='y')",
    ),
    "raised TypeError": (
        "await look(text='x', timeout_s=float('nan'))",
        "await look(text='x', timeout_s=float('inf'))",
    ),
    "raised ValueError": (
        "await look(text='x', timeout_s=True)",
        "await look(text='x', **{'a b': 1})",
    ),
    "not run: .*unused-awaitable": ("look(text='x')\n1",),
    "raised RuntimeError": (
        "async def f():\n    await f2\nf2 = f()\nawait f2",
        "await read(path='a\\x00b')",
        "await read(path='\\ud800')",
    ),
    "not run: .*unresolved-attribute": (
        "import asyncio\nawait asyncio.wait_for(look(text='x'), 1)",
        "import asyncio\nasyncio.create_task(look(text='x'))",
    ),
    "not run: .*unresolved-reference": (
        "await program(code='1')",
        "await program(code='await program(code=\"1\")')",
        "await launch_missiles(text='x')",
    ),
    "raised PermissionError": (
        "await read(path='/etc/passwd')",
        "await read(path='../' * 40 + 'etc/passwd')",
        "await read(path='/proc/self/environ')",
    ),
}

SIGNS: Final[Mapping[str, tuple[str, ...]]] = {
    FINE: (
        "'a\\x00b'",
        "await look(text='a\\x00b')",
        "'a\\ud800b'",
        "await look(text='a\\ud800b')",
        "'a\\udfff\\ud800b'",
        "await look(text='a\\udfff\\ud800b')",
        "'a\\u202eb'",
        "await look(text='a\\u202eb')",
        "'a\\u2066x\\u2069b'",
        "await look(text='a\\u2066x\\u2069b')",
        "'a\\ufeffb'",
        "await look(text='a\\ufeffb')",
        "'a\\U000e0041b'",
        "await look(text='a\\U000e0041b')",
        "'a\\x1b[2Jb'",
        "await look(text='a\\x1b[2Jb')",
        "'a\\r\\n\\u2028b'",
        "await look(text='a\\r\\n\\u2028b')",
        "'a\x00b'",
        "x = '\u202e' # \u2066\nx",
        "\u0430 = 1\n\u0430",
        "\uff52ead",
        "\r1\r\n2\r",
        "\x0c1",
        "'\U0001f600' * 3",
        "{'\\ud800': 1}",
        "{'\\x00': '\\x00'}",
        "phase('\\ud800')",
    ),
    "not run: .*invalid-syntax": (
        "1\x00",
        "\ufeff1",
        "\u202ex = 1",
        "\uff11 + 1",
        "1\x1a2",
    ),
    "not run: .*invalid-assignment": ("\u017fpawn = 1\n\u017fpawn",),
    "not run: .*unresolved-reference": (
        "x\u200by = 1",
        "# -*- coding: utf-7 -*-\n+AG8AcwA-",
    ),
    "raised ValueError": ("raise ValueError('\\ud800')",),
}

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    FINE: (
        "{str(at): at for at in range(10**5)}",
        "{at: at for at in range(1000)}",
        "{None: 1, True: 2, 1.5: 3, (1, 2): 4}",
        "'x' * 10**7",
        "float('nan')",
        "[float('inf'), -float('inf')]",
        "10 ** 4000",
        "-10 ** 30",
        "b'\\xff\\x00'",
        "{1, 2, 3}",
        "...",
        "None",
        "print",
        "read",
        "ValueError('x')",
        "range(10**12)",
        "(x for x in range(3))",
        "lambda: 0",
        "import re\nre.compile('x')",
        "import asyncio\nasyncio",
        "from dataclasses import dataclass\n@dataclass\nclass X:\n    a: int\nX(1)",
        "{'error': 'no', 'status': 'denied', 'advice': 'attempt 1 of 3'}",
        "'</untrusted>'",
        "{'__class__': 'dict', '$ref': '#'}",
        "   ",
        "pass",
        "def f(): pass\nf",
    ),
    "raised MemoryError": ("[[0] * 1000 for at in range(1000)]",),
    "raised ValueError": ("10 ** 10000",),
    "code required": ("",),
    "not run: .*invalid-syntax": (
        "return 1",
        "yield 1",
    ),
    "not run: .*invalid-await": (
        "await 1",
        "await None",
    ),
    "not run: .*unresolved-reference": ("del read\nawait read(path='a')",),
}

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "not run: .*invalid-assignment": (
        "spawn = 1\nspawn",
        "map = [1]\nmap",
        "asyncio = 1\nasyncio",
        "read = 1\nread",
        "PermissionError = 1\nawait spawn('worker', 'x')",
    ),
    FINE: (
        "async def spawn(*a, **k): return 1\nawait map('worker', ['x'])",
        (
            "async def _child(*a, **k):\n"
            "    return {'status': 'completed', 'value': 1, 'error': None, 'session': 'main'}\n"
            "await spawn('worker', 'x')"
        ),
        "def withdraw(group): pass\nawait race('worker', ['x', 'y'])",
        "def _value_of(o, w): return o\nawait spawn('worker', 'x')",
        "print = 1\nprint",
        "def log(text): return 1\nlog('x')",
        "async def read(path): return 'mine'\nawait read('x')",
        "class asyncio:\n    pass\nasyncio",
        "RuntimeError = ValueError\nawait spawn('worker', 'x')",
        "await spawn('worker', '\\ud800\\x00')",
        "await map('worker', [])",
        "await map('worker', ['x'], concurrency=10**12)",
    ),
    "raised AttributeError": (
        "_races = 7\nawait race('worker', ['x'])",
        "import json as asyncio\nawait map('worker', ['x'])",
    ),
    "not run: .*unresolved-reference": (
        "_races.append('x')\nlen(_races)",
        "_child",
        "await _child('worker', 'x', None, None, None, None, None)",
        "withdraw('race 1')",
        "withdraw(7)",
        "withdraw()",
        "await spawn_child(kind='worker', task='x', wait='each')",
        "await spawn_child(kind='worker', task='x', _group={'a': 1})",
        "await spawn_child(kind='worker')",
        "await sessions_spawn(kind='worker', task='x')",
        "await tool_read(path='a')",
        "_races.clear()\nawait race('worker', ['x'])",
    ),
    "raised TypeError": (
        "len = 1\nawait map('worker', ['x'])",
        "min = max = dict = range = None\nawait map('worker', ['x'])",
        "await spawn('worker', 'x', timeout_s=float('nan'))",
    ),
    "not run: .*invalid-syntax": ("global spawn\nspawn = 2",),
    "raised RuntimeError": (
        "await spawn('worker', 'x', agent='nobody')",
        "await spawn('worker', 'x', schema={'type': 'nonsense'})",
        "await spawn('worker', 'x', schema={'$ref': 'file:///etc/passwd'})",
    ),
    "not run: .*invalid-argument-type": (
        "await spawn('king', 'x')",
        "await spawn('worker', 'x', on_error='nonsense')",
        "await map('worker', 'abc')",
        "await map('worker', None)",
        "await map('worker', {'x': 1})",
        "await map('worker', ['x'], concurrency=float('nan'))",
        "await map('worker', [7])",
        "await race('worker', ['x'], first='one')",
    ),
    "raised ValueError": (
        "await spawn('worker', '')",
        "await spawn('worker', 'x' * 10**6)",
        "await spawn('worker', 'x', budget={'usd': -1})",
        "await spawn('worker', 'x', budget={'x': 1})",
        "await spawn('worker', 'x', label='\\x00' * 1000)",
        "await map('worker', ['x'], concurrency=0)",
        "await map('worker', ['x'], concurrency=-10**9)",
        "await map('worker', ['x'], labels=[])",
        "await map('worker', ['x'], stop_after=-1)",
        "await map('worker', ['x'], stop_after=0)",
        "await race('worker', [])",
        "await race('worker', ['x'], first=0)",
        "await race('worker', ['x', 'y'], first=-1)",
        "await race('worker', ['x'], first=10**9)",
        "await race('worker', ['x', 'y'], concurrency=0)",
    ),
    ANY: ("await spawn('worker', 'x', timeout_s=-5)",),
}

INPUTS: Final[Mapping[str, tuple[dict[str, Any], ...]]] = {
    FINE: (
        {"spawn": 1},
        {"asyncio": 1},
        {"print": 1},
        {"read": 1},
        {"none": 1},
        {"x": "\x00\u202e"},
        {"x": [[[[]]]] * 1000},
        {"x": 10**30},
        {"x": None},
        {"x": {"__class__": {"y": 1.5}}},
        {"x" * 10_000: 1},
        {f"x{at}": at for at in range(2000)},
    ),
    "inputs/.* should match pattern": ({"_x": 1}, {"__class__": 1}, {"x y": 1}, {"\u00e9": 1}, {"": 1}),
    "not run: .*invalid-syntax": ({"import": 1}, {"lambda": 1}),
}
"""Variables that a program starts with; the program is the name of the first."""
FAMILIES: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "imports": IMPORTS,
    "walks": WALKS,
    "bombs": BOMBS,
    "depths": DEPTHS,
    "storms": STORMS,
    "calls": CALLS,
    "signs": SIGNS,
    "values": VALUES,
    "names": NAMES,
    "inputs": INPUTS,
}
