"""One wheel for every Python: the library is loaded by ctypes, but it is a machine's own."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """It has a library, so it belongs into platlib."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"bdist_wheel": Wheel}, distclass=Binary)
