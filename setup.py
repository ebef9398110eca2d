"""What pyproject.toml cannot say: which modules are compiled."""

from Cython.Build import cythonize
from setuptools import setup

setup(ext_modules=cythonize(["server/**/*.pyx"]))
