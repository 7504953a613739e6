"""Make a link to the reference of each name in code type that the reference documents.

Prose then says `BasicSampler`, without markup, and the reader gets a link. A name is linked where it is clear
what is meant: a whole dotted name, or an ending of one that no other public name has.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

# A name, perhaps called; not an expression.
NAME = re.compile(r"([A-Za-z_][\w.]*)(?:\(.*\))?$", re.S)
ROOTS = ("parllel", "parllel_patterns")


def endings(names: Iterable[str]) -> dict[str, str]:
    """Return which name is meant by each whole name, and by each ending that starts at an object.

    "Class" and "Class.method" stand for "package.Class.method"; what two names end in stands for none, except
    that a class or function goes before attributes and methods of the same name.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        parts = name.split(".")
        for i in range(len(parts)):
            found[".".join(parts[i:])].add(name)
    meant = {
        ending: next(iter(whole)) for ending, whole in found.items() if len(whole) == 1
    }
    return {
        ending: name for ending, name in meant.items() if is_object_ending(ending, name)
    }


def is_object_ending(ending: str, name: str) -> bool:
    """Return whether an ending begins where a class, function or package does, not within a class."""
    before = name.removesuffix(ending).rstrip(".")
    return not any(part[:1].isupper() for part in before.split("."))


class LinkNames(SphinxPostTransform):
    """Replace literals by references."""

    default_priority = 900

    def run(self, **options: Any) -> None:
        """Look at every literal of a page, headings and links apart."""
        # An alias is the module in which something is written; the reference shows where to import it from.
        objects = {
            name: found
            for name, found in self.env.domains["py"].objects.items()
            if not found.aliased
        }
        meant = endings(
            name for name, found in objects.items() if found.objtype != "module"
        )
        meant |= {
            name: name for name, found in objects.items() if found.objtype == "module"
        }
        for literal in list(self.document.findall(nodes.literal)):
            match = NAME.match(literal.astext())
            inside = (nodes.reference, nodes.title, nodes.literal)
            if match is None or isinstance(literal.parent, inside):
                continue
            name = meant.get(match[1])
            if name is None or objects[name].docname == self.env.docname:
                continue
            target = objects[name]
            literal.replace_self(
                make_refnode(
                    self.app.builder,
                    self.env.docname,
                    target.docname,
                    target.node_id,
                    literal.deepcopy(),
                    name,
                )
            )


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_post_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
