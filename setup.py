"""Compiles the Cython modules; everything else is declared in pyproject.toml.

PENSTOCK_COMPILE=0 leaves compiling to a later `build_ext`, which finds again what it made before;
pip's own build of a checkout makes everything anew each time. PENSTOCK_TRACE=1 builds with line
tracing (coverage); PENSTOCK_SANITIZE=1 with the address and undefined-behaviour sanitizers. The
generated C goes to build/, never among the sources.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path("src")
COMPILE = os.environ.get("PENSTOCK_COMPILE") != "0"
TRACE = os.environ.get("PENSTOCK_TRACE") == "1"
SANITIZE = os.environ.get("PENSTOCK_SANITIZE") == "1"

flags = ["-O3", "-fno-strict-aliasing", "-Wno-unreachable-code"]
if SANITIZE:
    flags += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]

extensions = [
    Extension(
        ".".join(path.relative_to(SOURCE).with_suffix("").parts),
        [str(path)],
        extra_compile_args=flags,
        extra_link_args=["-fsanitize=address,undefined"] if SANITIZE else [],
        define_macros=[("CYTHON_TRACE", "1")] if TRACE else [],
    )
    for path in sorted(SOURCE.rglob("*.pyx") if COMPILE else ())
]

setup(
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "language_level": 3,
            "cdivision": True,
            "embedsignature": True,
            "linetrace": TRACE,
        },
    ),
)
