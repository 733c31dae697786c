"""The filters that Rookery has, one file each; a file's name is the `type` of the configuration.

Each file has one class that derives from `Filter`. Packages of others offer theirs under the entry
point group `rookery.filters`.
"""
