"""What pyproject.toml cannot say: which modules are compiled, and what that takes."""

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, CompileError

_NEEDED = (
    "Amperage has modules that are compiled, and this did not work here: it takes a C compiler and"
    " the headers of Python. Debian, Ubuntu: apt install gcc python3-dev. Fedora, RHEL: dnf install"
    " gcc python3-devel. Or install a wheel that was built elsewhere for the same Python"
)


class BuildExtensions(build_ext):
    """Says what is missing where nothing can be compiled."""

    def build_extension(self, ext: Extension) -> None:
        """Compile a module.

        Raises:
            CompileError: that is not possible.
        """
        try:
            super().build_extension(ext)
        except (OSError, CCompilerError) as error:
            raise CompileError(f"{error}\n{_NEEDED}") from error


setup(
    ext_modules=cythonize(["server/**/*.pyx"]),
    cmdclass={"build_ext": BuildExtensions},
)
