"""A limited child process for what must not run beside a training: evaluated answers, patterns, tests, user files.

`child.Child` is the parent's side. `host` is the child: standard library only, started in 30 ms, cut off from the
network and from writing wherever the system allows. The tasks it can do are the files beside it.
"""
