"""All but the compiled part stands in setup.cfg. Without a compiler, or with GPUDOCTOR_PURE set, gpudoctor is Python alone."""

import os
import sysconfig

from setuptools import Extension, setup

LINES = Extension(
    "gpudoctor.read._lines",
    ["gpudoctor/read/_lines.c", "gpudoctor/read/_words.c"],
    depends=["gpudoctor/read/_memory.h", "gpudoctor/read/_words.h"],
    define_macros=[("Py_LIMITED_API", "0x030A0000")],  # one build for Python 3.10 and every later one
    extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"],
    py_limited_api=True,
    optional=True,
)

# A Python without the global lock has no limited API, and its wheels no place for one.
if os.environ.get("GPUDOCTOR_PURE") or sysconfig.get_config_var("Py_GIL_DISABLED"):
    setup()
else:
    setup(ext_modules=[LINES], options={"bdist_wheel": {"py_limited_api": "cp310"}})
