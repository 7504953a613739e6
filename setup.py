"""Name the packages: they lie in two folders. Everything else is in setup.cfg."""

from setuptools import find_packages, setup

setup(
    packages=find_packages(".", include=["parllel*"]) + find_packages("patterns"),
    package_dir={"parllel_patterns": "patterns/parllel_patterns"},
)
