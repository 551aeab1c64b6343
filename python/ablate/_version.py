"""The version of the package, which is the library's."""

__version__ = "0.1"
