"""One live measurement from start to facts: engine, GPUs, the run, and on a miss the variations."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from gpudoctor.bandwidth import plan, python, tests_engine
from gpudoctor.bandwidth.bisect import Bisect, telling
from gpudoctor.bandwidth.estimate import estimate
from gpudoctor.bandwidth.options import NotStarted, Options
from gpudoctor.bandwidth.pairsearch import PairSearch
from gpudoctor.bandwidth.settings import Site
from gpudoctor.bandwidth.tests_engine import TestsEngine
from gpudoctor.bandwidth.torch_engine import TorchEngine
from gpudoctor.bandwidth.work import CannotStart, Engine, Measured, Progress, Target, Work
from gpudoctor.facts.bandwidth import BandwidthRun
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.store import FactStore
from gpudoctor.facts.system import Grant, Jobs, Settings
from gpudoctor.facts.topology import Pairs
from gpudoctor.facts.trials import Trials
from gpudoctor.record import replace

QUICK_S = 10.0  # all sizes of the default run; what does not fit is left out and said
FULL_S = 90.0
PAIRS_S = 60.0


class Session:
    """Everything of one call. Close it: it holds child processes."""

    def __init__(
        self, options: Options, environ: Mapping[str, str], folder: str, until: float, progress: Progress
    ) -> None:
        self.options = options
        self.environ = dict(environ)
        self.folder = folder
        self.until = until
        self.progress = progress
        self.torch: TorchEngine | None = None
        self.engine: Engine | None = None
        self.site = Site(environ, None)
        self.targets: tuple[Target, ...] = ()
        self.work: Work | None = None
        self.measured = Measured()
        self.parts: list[Measured] = []  # copies, pairs
        self.notes: list[str] = []
        self.trials: Trials | None = None
        self.pair_search: PairSearch | None = None
        self.began = time.monotonic()
        self.engine_s = 0.0  # until the engine was ready (PyTorch imported)

    def choose(self) -> NotStarted | None:
        """Find the engine and let it begin to load: the look at the host is taken meanwhile. What keeps it is returned."""
        wish, backend = self.options.engine, self.options.backend
        try:
            folder = None
            if backend == "nccl" and wish != "torch":
                folder = tests_engine.find(self.options.nccl_tests, self.environ)
                if folder is None and wish == "nccl-tests":
                    raise CannotStart("no all_reduce_perf: pass --nccl-tests DIR, set NCCL_TESTS_HOME, or put it on PATH")
            if folder is not None:
                self.engine = TestsEngine(folder, self.environ, self.folder)
            try:
                found = python.find(self.options.python, self.environ, self.until)
                self.torch = TorchEngine(found, self.environ, self.folder)
                if self.engine is None or self.options.host_copies:
                    self.torch.launch()
            except CannotStart as error:
                if self.engine is None or self.options.python is not None:
                    raise
                self.torch = None
                self.notes.append(f"host copies and the proof of peer to peer need PyTorch, which was not found ({error})")
            self.engine = self.engine or self.torch
        except CannotStart as error:
            return NotStarted("a program to measure with", str(error))
        return None

    def close(self) -> None:
        for engine in (self.engine, self.torch):
            if engine is not None:
                engine.close()

    def aim(self, store: FactStore | None) -> None:
        """Which GPUs. store None: gloo, processes on the CPU."""
        if store is None:
            words = self.options.gpus
            count = 2 if words == "all" else int(words) if words.isdigit() else 0
            if not 1 <= count <= 64:
                raise plan.Unusable(f"--gpus {words}: with --backend gloo it is a number of processes, 2 to 64")
            self.targets = tuple(Target(index=i, on_cpu=True) for i in range(count))
            return
        gpus = store.get(Gpus)
        if gpus is None or not gpus.listed:
            raise NotStarted(Gpus.label, store.missing.get(Gpus, "no source gave it"), "nvidia-smi", of_host=True)
        try:
            self.targets = plan.targets(self.options.gpus, gpus, store.get(Grant))
        except plan.NotHere as error:
            raise NotStarted("the GPUs asked for", str(error), "nvidia-smi -L; env | grep VISIBLE") from error
        if not self.targets:
            raise NotStarted("a GPU to measure", "none is granted to this process", "nvidia-smi -L; env | grep VISIBLE")
        self.site = Site(self.environ, store.get(Settings))
        if not self.options.force:
            self._idle(store)

    def _idle(self, store: FactStore) -> None:
        """A number taken beside somebody's job is wrong for us and hurts the job."""
        chosen = {t.bdf: t for t in self.targets if t.bdf}
        busy = []
        for process in store.get(Jobs) or ():
            held = [
                chosen[b].label
                for b in (process.gpus or ((process.gpu_bdf,) if process.gpu_bdf else ()))
                if b in chosen
            ]
            # A process that has ended since holds nothing; one of another PID namespace was never to be seen here.
            gone = process.unreadable is None and not os.path.exists(f"/proc/{process.pid}")
            if held and not gone:
                busy.append(
                    f"process {process.pid}" + (f" ({process.name})" if process.name else "") + f" on {', '.join(held)}"
                )
        if busy:
            raise NotStarted(
                "GPUs that nobody uses", f"{'; '.join(busy[:6])}: wait for the end, choose others with --gpus, or measure beside it with --force"
            )

    def run(self, store: FactStore | None) -> None:
        """The measurement itself. Raises NotStarted."""
        assert self.engine is not None
        options = self.options
        ranks = len(self.targets)
        sizes = options.sizes or (plan.GLOO if options.backend == "gloo" else plan.FULL if options.full else plan.QUICK)
        off = self.site.p2p_off() and not options.allow_p2p
        self.work = work = Work(
            collective=options.collective,
            targets=self.targets,
            sizes=sizes,
            backend=options.backend,
            repeats=5 if options.full else 3,
            seconds=FULL_S if options.full else QUICK_S,
            host_copies=options.host_copies and options.backend == "nccl",
            # Writing to a neighbour could hang where the site has peer to peer off for that reason.
            proof=options.backend == "nccl" and ranks > 1 and not off,
            set=self.site.kept(),
            until=self.until,
            hang_s=options.hang_s,
            settings={n: s.value for n, s in self.site.effective.items()},
        )
        try:
            self.engine.start(self.until)
        except CannotStart as error:
            raise NotStarted("a program to measure with", str(error)) from error
        self.engine_s = time.monotonic() - self.began
        if ranks == 1:
            self.notes.append("one GPU: there is nothing to measure between GPUs")
        rounds = (
            plan.rounds_of_pairs(self.targets, store.get(Pairs) if store is not None else None)
            if options.pairs and ranks > 2
            else ()
        )
        if (self.torch is not self.engine or ranks == 1) and (work.host_copies or work.proof):
            self._beside(replace(work, pairs=rounds))
            work = replace(work, host_copies=False, proof=False)
        if ranks == 1 and not any(part.copies for part in self.parts):
            raise NotStarted("a measurement of one GPU", self._nothing_of_one())
        if ranks > 1 and self._may_go_on():
            self.measured = self.engine.run(work, self.progress)
            self._vet(self.measured)
            self.site.nccl = _nccl_of(self.measured)
            if rounds and self.missed is not None:
                some = options.sizes or (plan.GLOO[-2:] if options.backend == "gloo" else plan.PAIR)
                self._keep(
                    self.engine.run(
                        # The ring's neighbours are proven; pairs across it are not.
                        replace(work, pairs=rounds, sizes=some, repeats=1, seconds=PAIRS_S, host_copies=False),
                        self.progress,
                    )
                )
        self.notes += [n for m in (self.measured, *self.parts) for n in m.notes if n not in self.notes]
        self.notes += self.site.kept_words()

    def _nothing_of_one(self) -> str:
        if self.options.backend == "gloo":
            return "one process has nobody to talk to: --gpus 2"
        if not self.options.host_copies:
            return "one GPU has only its copies to and from the host, and --no-host-copies leaves them out"
        why = next((n for n in self.notes if n.startswith("host copies")), "its copies to and from the host gave no rate")
        return f"one GPU has only its copies to and from the host: {why}"

    def _beside(self, work: Work) -> None:
        """Host copies and the proof of peer to peer, which nccl-tests does not make. Without PyTorch they are left out."""
        if self.torch is None:
            return
        try:
            self.torch.start(self.until)
            measured = self.torch.run(replace(work, sizes=(), seconds=1.0), self.progress)
        except CannotStart as error:
            measured = Measured(stopped=str(error))
        if measured.stopped is not None and not measured.short_of_memory and len(self.targets) > 1:
            self.notes.append(f"host copies and the proof of peer to peer were left out: {measured.stopped}")
            return
        self._keep(measured)

    def _keep(self, measured: Measured) -> None:
        self._vet(measured)
        self.parts.append(measured)

    def _vet(self, measured: Measured) -> None:
        if measured.stopped is None:
            return
        if measured.short_of_memory:
            raise NotStarted("memory for the buffers", f"{measured.stopped}: free it, or take smaller --sizes", "nvidia-smi")
        raise NotStarted("the measurement", measured.stopped, of_host=measured.no_gpu)

    def _may_go_on(self) -> bool:
        """A failed proof of peer to peer ends it: what NCCL would send that way is mangled, or hangs."""
        failed = [m.run for m in self.parts if m.run is not None and m.run.failures]
        if failed:
            self.measured = Measured(run=failed[0], log=self.parts[-1].log, engine=self.parts[-1].engine)
        return not failed

    @property
    def missed(self) -> BandwidthRun | None:
        """The run that variations are compared with, where one can be made."""
        run = self.measured.run
        return run if run is not None and not run.failures and run.plateau_busbw_gbs else None

    def bisect(self, store: FactStore | None) -> None:
        """Variations of the run that fell short."""
        run = self.missed
        if run is None or self.work is None or self.engine is None:
            return
        search = Bisect(
            self.engine, self.work, self.site, run.plateau_busbw_gbs or 0.0, self.progress, self.options.allow_p2p
        )
        trials = search.run(lambda: self._search_pairs(store))
        self.trials = Trials(trials, estimate(search.clean[1], len(self.targets), search.clean[0]) if search.clean else None)
        self.notes += telling(self.trials)

    def _search_pairs(self, store: FactStore | None) -> bool:
        """Is it one pair, or one GPU? Asked where there are several, and not all were measured on request."""
        if len(self.targets) < 3 or self.options.pairs or self.work is None or self.engine is None:
            return False
        gpus, pairs = (store.get(Gpus), store.get(Pairs)) if store is not None else (None, None)
        search = PairSearch(self.engine, self.work, gpus, pairs, self.progress, self.work.proof)
        search.run()
        self.pair_search = search
        self.notes.append(search.words())
        return bool(search.blamed)

    def after_failure(self) -> None:
        """A run that hung, crashed or returned wrong data, once more without peer to peer."""
        run = self.measured.run or next((m.run for m in self.parts if m.run is not None), None)
        if (
            run is None
            or self.work is None
            or self.engine is None
            or self.options.backend != "nccl"
            or self.site.p2p_off()
        ):
            return
        search = Bisect(self.engine, self.work, self.site, 0.0, self.progress, self.options.allow_p2p)
        self.trials = Trials(search.after_failure())
        (trial,) = self.trials
        if trial.why_not is None:
            self.notes.append(
                "with NCCL_P2P_DISABLE=1 the same run works"
                + (f" ({trial.after_gbs:.4g} GB/s)" if trial.after_gbs is not None else "")
                + ": it is peer to peer that fails here (ACS, IOMMU, a link between the GPUs), and not NCCL's other ways"
            )
        else:
            self.notes.append(f"without peer to peer (NCCL_P2P_DISABLE=1) it does not work either: {trial.why_not}")


def _nccl_of(measured: Measured) -> str | None:
    """The release that ran: as the program or PyTorch says it, else as NCCL's log does."""
    if measured.run is not None and measured.run.nccl_version is not None:
        return measured.run.nccl_version
    found = re.search(rb"NCCL version (\d+(?:\.\d+)+)", measured.log)
    return found[1].decode() if found is not None else None
