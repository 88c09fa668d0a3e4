"""Which NCCL settings this site has, and how a child is given an environment without one of them.

NCCL puts the lines of its files into the environment without overwriting what is there (src/misc/param.cc), so a value in
the child's environment beats both files (nccl_defaults.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpudoctor.checkers.nccl_env import level_of, strtol
from gpudoctor.facts.system import Setting, Settings
from gpudoctor.model import Evidence
from gpudoctor.nccl_defaults import CONF_FILE, NoValue, neutral, numbers
from gpudoctor.record import KeyedRecord

# NVLink multicast is the site's decision: in-switch reduction can take the GPUs of a shared host down. What switches it
# off stays set in every child, whatever else is taken away.
KEPT = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
_NOT_TRIED = (
    "NCCL_DEBUG",
    "NCCL_CONF_FILE",
    "NCCL_TESTS_",
    "NCCL_TOPO_DUMP",
    "NCCL_GRAPH_DUMP",
    "NCCL_NVLS_",
    "NCCL_RAS_",
    "NCCL_VERSION",
)
P2P = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
_USERS = "~/.nccl.conf"


class Change(KeyedRecord):
    """What is different in a child's environment."""

    put: Mapping[str, str]
    unset: tuple[str, ...] = ()


class Site:
    """The settings that a run from here obeys."""

    def __init__(self, environ: Mapping[str, str], settings: Settings | None) -> None:
        self.environ = environ
        self.nccl: str | None = None  # the release that runs here, once it is known: values mean what it takes them for
        given = tuple(s for s in settings or () if s.name.startswith("NCCL_") or s.name in KEPT)
        known = {s.name: s for s in given if s.scope == "environment" and environ.get(s.name) == s.value}
        own = tuple(
            known.get(n)
            or Setting(name=n, value=v, scope="environment", origin={"*": Evidence("environment", n, f"{n}={v}")})
            for n, v in sorted(environ.items())
            if n.startswith("NCCL_") or n in KEPT
        )
        # The environment that the children get is ours, whatever host the facts are of.
        self.entries = (*own, *(s for s in given if s.scope != "environment"))

    @property
    def effective(self) -> dict[str, Setting]:
        """The one that counts of each name."""
        everything = Settings(self.entries)
        found = {s.name: everything.get(s.name) for s in self.entries}
        return {name: s for name, s in found.items() if s is not None}

    def kept(self) -> dict[str, str]:
        """What every child gets, come what may: from the environment, and from the files as well."""
        out = {name: s.value for name, s in self.effective.items() if name in KEPT}
        out.update({name: self.environ[name] for name in KEPT if name in self.environ})
        return out

    def kept_words(self) -> tuple[str, ...]:
        """For the report: which of these hold in-switch reduction off, and what that means."""
        values = self.kept()
        off = [
            f"{n}={v}"
            for n, v in values.items()
            if (v.strip() == "0") == (n == "NCCL_NVLS_ENABLE") and v.strip() in ("0", "1")
        ]
        if not off:
            return ()
        return (
            f"{', '.join(off)} stays set in every run, those on a miss included: the site keeps NVLink multicast off. "
            "Where the GPUs sit behind NVSwitches this lowers what can be expected.",
        )

    def candidates(self) -> tuple[Setting, ...]:
        """Settings that may hold a run back, one per name, in the order of their names."""
        return tuple(
            s for name, s in sorted(self.effective.items()) if name not in KEPT and not name.startswith(_NOT_TRIED)
        )

    def p2p_off_by_site(self) -> Setting | None:
        """A file's line that keeps GPUs from peer to peer; it may be there because peer to peer hangs on this host."""
        for s in self.entries:
            if s.scope != "environment" and s.name in P2P and _restricts(s):
                return s
        return None

    def p2p_off(self) -> bool:
        """Does any setting in force switch peer to peer off altogether?"""
        disable, level = (self.effective.get(name) for name in P2P)
        return (disable is not None and strtol(disable.value) == 1) or (
            level is not None and level_of(level.value) == "LOC"
        )

    def why_not(self, setting: Setting, allow_p2p: bool) -> str | None:
        """Why a run without this setting cannot or must not be made; None where it can."""
        if setting.name in P2P and not allow_p2p and self.p2p_off_by_site() is not None:
            return "peer to peer is off in a file of this site, perhaps because it hangs here: tried with --allow-p2p only"
        try:
            for s in self.entries:
                if s.name == setting.name and s.scope != "environment":
                    self._neutral(s)
        except NoValue as error:
            where = setting.scope if setting.scope != "environment" else "a file"
            return f"{error}: take the line out of {where} and measure again"
        return None

    def _neutral(self, setting: Setting) -> str | None:
        """What makes a file's line mean the default; None: leave the user's file out. Raises NoValue."""
        policy = self.effective.get("NCCL_CTA_POLICY")
        if setting.name in ("NCCL_ALGO", "NCCL_PROTO") and policy is not None and strtol(policy.value) != 0:
            raise NoValue(f"with NCCL_CTA_POLICY={policy.value} NCCL asks whether {setting.name} is set at all")
        try:
            return neutral(setting.name, setting.value, self.nccl)
        except NoValue:
            if setting.scope == _USERS and numbers(self.nccl) >= CONF_FILE:
                return None
            raise

    def without(self, names: Iterable[str]) -> Change:
        """An environment in which these names are at NCCL's default, and what must stay is set."""
        put: dict[str, str] = {}
        unset = []
        for name in names:
            if name in KEPT:
                continue
            lines = [s for s in self.entries if s.name == name and s.scope != "environment"]
            # Of two files' lines the system's, which cannot be left out, is the stricter.
            values = {self._neutral(s) for s in lines}
            known = next((v for v in values if v is not None), None)
            if known is not None:
                put[name] = known
                continue
            unset.append(name)
            if lines:
                # The user's file is left out as a whole; what else it says is put into the environment.
                put["NCCL_CONF_FILE"] = "/dev/null"
        if "NCCL_CONF_FILE" in put:
            for s in self.entries:
                if s.scope == _USERS and s.name not in unset and s.name not in put and s.name not in self.environ:
                    put[s.name] = s.value
        return Change(put={**put, **self.kept()}, unset=tuple(unset))


def _restricts(setting: Setting) -> bool:
    if setting.name == "NCCL_P2P_DISABLE":
        return strtol(setting.value) == 1
    return level_of(setting.value) not in (None, "SYS")


def place(setting: Setting) -> str:
    """`NCCL_P2P_DISABLE=1 in /etc/nccl.conf (line 3)`."""
    if setting.scope == "environment":
        return f"{setting.name}={setting.value} in the environment"
    return f"{setting.name}={setting.value} in {setting.scope} ({setting.at('value').where})"
