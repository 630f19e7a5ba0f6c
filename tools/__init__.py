"""Tools for work on this tree. No part of the package."""
