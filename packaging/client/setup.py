"""Builds the client's distribution from the sources of the checkout.

Two compiled modules of `amperage.wire` have short replacements in pure/, with which frames are read
one by one.
"""

from pathlib import Path
from runpy import run_path
from shutil import copyfile

from setuptools import setup
from setuptools.command.build_py import build_py

_HERE = Path(__file__).parent
_ROOT = Path("..", "..")
_PACKAGES = ("amperage", "amperage.client", "amperage.wire", "amperage.wire.legacy")
_OF_THE_SERVER = ("own", "scripts", "spark_formats")


class BuildClient(build_py):
    """Copies the client's modules, and the pure ones in place of those that are compiled."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return a package's modules, without those that only the server's distribution has."""
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [one for one in found if package != "amperage" or one[1] not in _OF_THE_SERVER]

    def run(self) -> None:
        """Copy the modules."""
        super().run()
        for module in (_HERE / "pure").glob("*.py"):
            copyfile(module, Path(self.build_lib, "amperage", "wire", module.name))


setup(
    version=run_path(str(_HERE / _ROOT / "config_schema" / "version.py"))["VERSION"],
    packages=list(_PACKAGES),
    package_dir={"amperage": str(_ROOT / "amperage")},
    package_data={"amperage": ["py.typed"], "amperage.client": ["py.typed"]},
    cmdclass={"build_py": BuildClient},
)
