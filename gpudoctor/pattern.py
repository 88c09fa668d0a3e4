"""Regular expressions that are compiled when they are first used.

Compiling costs 0.2 to 1.5 ms each, and most inputs need few of a parser's: on a sound host none of the kernel log's.
For expressions that every run uses, `re.compile` says the same and is plainer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, AnyStr

if TYPE_CHECKING:

    def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]: ...

else:

    class lazy:
        """Stands for `re.compile(pattern, flags)`: has all its methods."""

        def __init__(self, pattern: AnyStr, flags: int = 0) -> None:
            self._given = (pattern, flags)

        def __getattr__(self, name: str) -> Any:
            # Reached once for each method: from then on it is found in the instance itself.
            method = getattr(re.compile(*self._given), name)
            setattr(self, name, method)
            return method
