"""Child programs, run by file path in an interpreter of their own: each prints one line of JSON and changes nothing.

They import nothing of gpudoctor: a library call that hangs or crashes in a wedged driver takes only the child with it.
"""
