"""Environment to what a look beside the job cannot see of it: a prolog, an init container, a service of the node.

Such a look judges the node in the caller's own limits, environment and /dev/shm. The job gets others, so a pass says
nothing of them: they are named under `missing` and change no status.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.model import Missing

VARIABLE = "GPUDOCTOR_STAGE"  # set by whoever writes the manifest or the unit; beats what is detected
SLURM = "SLURM_SCRIPT_CONTEXT"  # set by Slurm in every prolog and epilog (slurm.schedmd.com/prolog_epilog.html)

SHM = "the job's /dev/shm"
ENVIRONMENT = "the job's environment (NCCL_*, CUDA_VISIBLE_DEVICES)"
LIMITS = "the job's limits (locked memory, CPU affinity)"

# stage -> where the look was taken, and what of that holds for the job.
STAGES = {
    "init": (
        "in an init container",
        "/dev/shm is the job's only where both containers mount the same volume there, variables and limits only where both are "
        "given the same",
    ),
    "prolog": (
        "in a prolog, before the job",
        "it ran with the limits and variables of the service that started it, and the job may get a /dev/shm of its own",
    ),
    "epilog": (
        "in an epilog, after the job",
        "it ran with the limits and variables of the service that started it, and the job may have had a /dev/shm of its own",
    ),
    "node": (
        "by a service of the node",
        "it ran with its own limits and variables, and every container has a /dev/shm of its own",
    ),
}
# A task prolog runs as the user in the job's own step: it sees what the job sees.
_OF_SLURM = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog"}
_CONTROLLER = ("prolog_slurmctld", "epilog_slurmctld")


def unseen(environment: Mapping[str, str]) -> tuple[Missing, ...]:
    """What this look cannot say of the job; nothing where it is taken by hand or in the job. ValueError for an unknown stage."""
    told = environment.get(VARIABLE, "").strip()
    context = environment.get(SLURM, "").strip()
    if told:
        if told not in STAGES:
            raise ValueError(f"{VARIABLE}={told}: known are {', '.join(STAGES)}")
        return _parts(told, f"{VARIABLE}={told}")
    if context in _OF_SLURM:
        return _parts(_OF_SLURM[context], f"{SLURM}={context}")
    if context in _CONTROLLER:
        reason = f"this ran on the host of Slurm's controller ({SLURM}={context}): call it from Prolog, which runs on the node"
        return (Missing("the job's node", reason),)
    return ()


def _parts(stage: str, told_by: str) -> tuple[Missing, ...]:
    where, holds = STAGES[stage]
    reason = f"looked {where} ({told_by}): {holds}"
    return tuple(Missing(fact, reason) for fact in (SHM, ENVIRONMENT, LIMITS))
