"""Sizes, GPUs and pairs of a measurement."""

from __future__ import annotations

import pytest

from gpudoctor.bandwidth import plan
from gpudoctor.bandwidth.plan import NotHere, Unusable
from gpudoctor.bandwidth.work import Target
from gpudoctor.facts.gpu import Gpu, Gpus
from gpudoctor.facts.system import Grant, GrantEntry
from gpudoctor.facts.topology import Pair, Pairs

GPUS = Gpus(tuple(Gpu(index=i, uuid=f"GPU-{i}000aaaa", bdf=f"0000:0{i}:00.0", name="A100") for i in range(4)))


def grant(words: str | None) -> Grant:
    return Grant(GrantEntry(cuda_visible=words))


def chosen(words: str, visible: str | None = None) -> list[int]:
    return [t.index for t in plan.targets(words, GPUS, grant(visible))]


def test_sizes_by_doubling_by_a_factor_and_as_a_list() -> None:
    assert plan.sizes("8:64") == (8, 16, 32, 64)
    assert plan.sizes("1M:1G:32") == (1 << 20, 32 << 20, 1 << 30)
    assert plan.sizes("1G,8,64k") == (8, 64 << 10, 1 << 30)
    assert plan.sizes("256MiB") == (256 << 20,)


@pytest.mark.parametrize("words", ["", "8:", "8:4", "0", "8:64:1", "8:64:x", "1T", "-8", "8:9:2:2", "1.5M"])
def test_what_is_no_size_is_wrong_usage(words: str) -> None:
    with pytest.raises(Unusable):
        plan.sizes(words)


def test_a_number_takes_the_first_gpus_and_a_comma_makes_a_list() -> None:
    assert chosen("2") == [0, 1]
    assert chosen("all") == [0, 1, 2, 3]
    assert chosen("3,1") == [3, 1]
    assert chosen("3,") == [3]
    assert chosen("GPU-2000,gpu-0000") == [2, 0]


def test_cuda_visible_devices_narrows_the_choice_and_ends_at_an_unknown_word() -> None:
    assert chosen("all", "2,0") == [0, 2]
    assert chosen("all", "GPU-3000,1") == [1, 3]
    assert chosen("all", "1,9,2") == [1]
    assert chosen("all", "") == []
    with pytest.raises(NotHere, match="not among those granted"):
        chosen("3,", "0,1")
    with pytest.raises(NotHere, match="not among those granted"):
        chosen("0,3", "0,1")


def test_more_than_there_are_is_not_wrong_usage_but_not_here() -> None:
    with pytest.raises(NotHere, match="5 GPUs were asked for, 4 are usable here"):
        chosen("5")
    with pytest.raises(NotHere, match="3 GPUs were asked for, 2 are usable here"):
        chosen("3", "0,1")
    with pytest.raises(NotHere, match="GPU 7 is not on this host"):
        chosen("0,7")


@pytest.mark.parametrize("words", ["one", "0,0", "0,x", ",", "GPU-"])
def test_what_names_no_gpu_is_wrong_usage(words: str) -> None:
    with pytest.raises(Unusable):
        chosen(words)


def test_a_gpu_that_does_not_answer_is_left_out() -> None:
    sick = Gpus((GPUS.gpus[0], Gpu(index=1, uuid="GPU-1", error="GPU is lost"), GPUS.gpus[2]))
    assert [t.index for t in plan.targets("2", sick, None)] == [0, 2]


def test_only_pairs_joined_by_nvlink_are_measured_together() -> None:
    targets = tuple(Target(index=i) for i in range(4))
    every = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    linked = Pairs(tuple(Pair(a=a, b=b, path="NVL", nvlinks=12) for a, b in every))
    rounds = plan.rounds_of_pairs(targets, linked)
    assert sorted(p for r in rounds for p in r) == every
    assert len(rounds) == 3 and all(len({i for p in r for i in p}) == 4 for r in rounds)
    shared = Pairs(tuple(Pair(a=a, b=b, path="PHB") for a, b in every))
    assert all(len(r) == 1 for r in plan.rounds_of_pairs(targets, shared))
    assert all(len(r) == 1 for r in plan.rounds_of_pairs(targets, None))


def test_pairs_are_ranks_not_indices() -> None:
    rounds = plan.rounds_of_pairs((Target(index=5), Target(index=2)), Pairs((Pair(a=2, b=5, path="NVL"),)))
    assert rounds == (((0, 1),),)


@pytest.mark.parametrize(
    "words, said",
    [
        ("foo", "'foo' is no index"),
        ("1.5", "no index"),
        ("-1", "no index"),
        ("0,x", "'x' is no index"),
        ("3-5", "a range is written out: 3,4,5"),
        ("0", "names no GPU"),
        (",", "names no GPU"),
        ("", "names no GPU"),
        ("0,0", "names GPU 0 twice"),
        ("GPU-1,gpu-1", "twice"),
    ],
)
def test_words_that_are_gpus_of_no_host_are_wrong_usage_before_one_is_looked_at(words: str, said: str) -> None:
    with pytest.raises(Unusable, match=said):
        plan.check(words)


@pytest.mark.parametrize("words", ["all", "1", "64", "0,3", "7,", "GPU-1000aaaa", "MIG-1,GPU-2", "0,99"])
def test_words_that_some_host_could_have_are_left_to_the_host(words: str) -> None:
    plan.check(words)


def test_a_gpu_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(NotHere, match="GPU 99 is not on this host, which has GPU 0 to 3"):
        chosen("0,99")
    with pytest.raises(NotHere, match="CUDA_VISIBLE_DEVICES leaves it GPU 0 and 1"):
        chosen("0,3", "0,1")


def test_each_pair_of_a_matching_is_its_own_gpus_and_every_pair_comes_once() -> None:
    for count in range(2, 17):
        found = plan.matchings(count)
        every = [pair for some in found for pair in some]
        assert len(every) == len(set(every)) == count * (count - 1) // 2
        assert all(len({gpu for pair in some for gpu in pair}) == 2 * len(some) for some in found)
    assert plan.matchings(8)[0] == ((0, 1), (2, 3), (4, 5), (6, 7)) and (0, 7) in plan.matchings(8)[1]
