"""One module per kind of group, each with its row `KIND`; the folder is scanned.

A module has a `GroupKind` named `KIND`. `Kinds`, in the package above, chooses by group.
"""
