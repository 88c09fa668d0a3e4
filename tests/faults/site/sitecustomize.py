"""First on the path of gpudoctor's Python children, so that they too can be played: they are interpreters, not tools of PATH.

An interpreter that is to run gpudoctor/probe/NAME.py becomes the program of that name in FAULT_CHILDREN instead.
"""

import os
import sys

folder = os.environ.get("FAULT_CHILDREN")
words = sys.orig_argv[1:2]
if folder and words and words[0].endswith(".py") and os.path.basename(os.path.dirname(words[0])) == "probe":
    played = os.path.join(folder, os.path.basename(words[0])[:-3])
    if os.path.exists(played):
        os.execv(played, [played])
