"""What would break: numbers, structures and functions of the package that are no longer those of tutti.h."""

import ctypes
import os
import pathlib
import re

import pytest
import tutti
from tutti import _dtypes, _library, errors

HEADER = (pathlib.Path(os.environ["SOURCE_DIR"]) / "include/tutti/tutti.h").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
# For layers in C; and ranks that are forked to run a function of C.
NOT_HERE = {"tutti_set_error", "tutti_spawn", "tutti_spawn_exit_code", "tutti_main", "tutti_launched"}


def enum(name):
    body = re.search(r"typedef enum %s \{(.*?)\}" % name, CODE, re.S)[1]
    return [word.split("=")[0].strip() for word in body.split(",") if word.strip() and "MAX_" not in word]


def declared():
    """{name: number of arguments}"""
    found = {}
    for name, arguments in re.findall(r"^[a-z][\w *]*?\b(tutti_\w+)\(([^;{]*?)\);", CODE, re.M | re.S):
        found[name] = 0 if arguments.strip() in ("", "void") else arguments.count(",") + 1
    return found


def test_functions():
    functions = declared()
    assert len(functions) > 50
    assert set(functions) - NOT_HERE <= set(_library.FUNCTIONS)
    for name, (_, *arguments) in _library.FUNCTIONS.items():
        assert name not in functions or len(arguments) == functions[name], name


def test_numbers():
    names = enum("tutti_dtype")
    for number, name in enumerate(names):
        assert _dtypes.BY_NAME[name.replace("TUTTI_", "").lower()].code == number
    assert len(_dtypes.BY_CODE) == len(names)
    for number, name in enumerate(enum("tutti_op")):
        assert getattr(tutti, name.replace("TUTTI_", "")).number == number
    for number, name in list(enumerate(enum("tutti_status")))[2:]:
        found = errors._CLASSES[number]
        assert found.status == number and found.name == name.replace("TUTTI_ERR_", "") and getattr(tutti, found.__name__) is found
    assert f"#define TUTTI_ANY ({tutti.ANY})" in HEADER


@pytest.mark.parametrize("name,structure", [("config", _library.Config), ("call", _library.Call), ("stats", _library.Stats), ("mem_place", _library.Place)])
def test_structures(name, structure):
    body = re.search(r"typedef struct tutti_%s \{(.*?)\} tutti_%s;" % (name, name), CODE, re.S)[1]
    declared = [re.sub(r"[*\s]|\[\d+\]", "", word.split()[-1]) for part in body.split(";") if part.strip() for word in part.split(",")]
    assert declared == [field[0] for field in structure._fields_]
    assert ctypes.sizeof(structure) % 8 == 0


def test_all_names_are_there():
    for name in tutti.__all__:
        assert getattr(tutti, name) is not None
