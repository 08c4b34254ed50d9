"""Compiles the Cython modules; everything else is declared in pyproject.toml.

PENSTOCK_COMPILE=0 leaves compiling to a later `build_ext`, which finds again what it made before;
pip's own build of a checkout makes everything anew each time. PENSTOCK_TRACE=1 builds with line
tracing (coverage); PENSTOCK_SANITIZE=1 with the address and undefined-behaviour sanitizers. The
generated C goes to build/, never among the sources.
"""

import os
import sys
import threading
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
COMPILE = os.environ.get("PENSTOCK_COMPILE") != "0"
TRACE = os.environ.get("PENSTOCK_TRACE") == "1"
SANITIZE = os.environ.get("PENSTOCK_SANITIZE") == "1"

flags = ["-O3", "-fno-strict-aliasing"]
if SANITIZE:
    flags += ["-g", "-O1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
else:
    # Debug symbols are a fifth of the time and nine tenths of the size. Warnings are about C that
    # Cython wrote: `cython-lint` and the sanitizers' build look at ours.
    flags += ["-g0", "-w"]


class BuildWithProgress(build_ext):
    """Compiles the modules, and says how far it is: on a terminal in one line that changes."""

    _lock = threading.Lock()
    _done = 0

    def build_extension(self, ext: Extension) -> None:
        """Compile one module."""
        super().build_extension(ext)
        with self._lock:
            self._done += 1
            text = f"  {self._done} of {len(self.extensions)} modules, {ext.name}"
            if sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{text}" + "\n" * (self._done == len(self.extensions)))
            elif self._done % 10 == 0 or self._done == len(self.extensions):
                sys.stderr.write(text + "\n")
            sys.stderr.flush()


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
    cmdclass={"build_ext": BuildWithProgress},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        quiet=True,
        compiler_directives={
            "language_level": 3,
            "cdivision": True,
            # No compiled class is pickled, and a sixth of the compiling would be for that.
            "auto_pickle": False,
            "embedsignature": True,
            "linetrace": TRACE,
        },
    ),
)
